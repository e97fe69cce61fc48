// The seam to devices: a Backend supplies the primitives of one device. The CPU's are in cpu/,
// those of NVIDIA GPUs in cuda/.
//
// Contract: views in, views out. A primitive never allocates device memory, never checks and never
// differentiates; its callers (tensor_ops.h) have checked shapes and dtypes. Inputs come first,
// outputs last. An output never overlaps an input, except that an elementwise primitive may write
// over an input's own view. Storage may have 16 bits; arithmetic and reductions are in float or
// wider (double for f64). Sums have a fixed order: equal inputs on one device give equal bits.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/device.h"
#include "core/random/philox.h"
#include "core/view.h"
#include "kernels/host_device/gemm_blocking.h"
#include "kernels/host_device/geometry.h"
#include "kernels/primitive_arguments.h"

namespace sotto {

class RoundedGaussian;
struct ChaChaStream;
struct ArrayCopy;
struct BoundedTerms;
struct CancelledSquares;
struct ClassTargets;
struct ClipRule;
struct FusedAttention;
struct FusedAttentionGrad;
struct LstmLayer;
struct Normalization;
struct NormalizationGrads;
struct RoundedRows;
struct RowNorms;
struct UpdateArray;

// Throughput figures for the choice between ghost norms and materialized per-sample gradients
// (docs/appendix/per-sample-notes.md). They are constants rather than run-time measurements,
// so that repeated runs make equal choices.
struct CostModel {
  double gram_flops;  // per second, in the small batched products of a ghost norm
  double rows_flops;  // per second, in per-sample weight gradients
  double sum_flops;   // per second, in one large product over the batch
  double bytes;       // per second, streaming memory
  // Bytes moved for each element of a ghost norm's Gram matrices; 0 where they stay in a cache.
  double gram_bytes = 0;
  // Additions of products of pixels per second in conv_gram_norms; 0 where the backend has none.
  double shifted_adds = 0;
  // In sums whose terms, the samples' gradients, stay in registers or a cache; 0: the gradients are
  // written to memory (rows_flops) and read.
  double term_sum_flops = 0;
};

// Turns attention scores into weights: the weights of each query are `total` times the softmax of
// `scale` times its scores, with masked keys left out.
struct AttentionMask {
  double scale = 1;
  double total = 1;
  // Row r belongs to query t = first_query + r. It attends to the first always_visible keys, and to
  // the key s after them if s <= t.
  bool causal = false;
  std::int64_t first_query = 0;
  std::int64_t always_visible = 0;
  // At most max_score_masks masks with the sizes of the scores (stride 0 repeats). An i64 mask
  // hides keys where it is not 0; a mask of the scores' type is added to them.
  std::span<const View> masks;

  HD bool may_hide() const { return causal || !masks.empty(); }
  // The number of keys, out of `keys`, that the causal mask lets a row's query see.
  HD std::int64_t in_time(std::int64_t row, std::int64_t keys) const {
    const std::int64_t end = always_visible + first_query + row + 1;
    return causal && end < keys ? end : keys;
  }
};
inline constexpr std::size_t max_score_masks = 4;

// The primitives of one device. Call them through tensor_ops.h, which checks and allocates; a new
// device implements this class.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;
  // For products of factors of a type.
  virtual CostModel costs(Dtype factors) const = 0;
  // Sums of products of factors of a type round each term at most roundings(terms, chain) times
  // (gemm_blocking.h).
  virtual std::int64_t chain_of_products(Dtype /*factors*/) const { return product_chain; }

  // Movement.
  virtual void fill(double value, View y) = 0;
  virtual void copy(View x, View y) = 0;  // equal sizes; converts the dtype
  // y[.., k, ..] = x[.., ids[k], ..] along `axis`; a negative id gives zeros. ids: i64, one axis.
  virtual void gather(View x, View ids, int axis, View y) = 0;
  // y[.., ids[k m + j], ..] += x[.., k, ..] for j < m: each slice of x has m >= 1 ids. Negative ids
  // are skipped. ids: i64, one axis.
  virtual void scatter_add(View x, View ids, int axis, View y) = 0;
  // One id per element: for axis 1, y[i, j, k] = x[i, ids[i, j, k], k]. ids: i64, with the sizes of
  // y, which do not exceed x's in the other axes.
  virtual void take_along(View x, View ids, int axis, View y) = 0;
  // The transpose of take_along: y[i, ids[i, j, k], k] += x[i, j, k].
  virtual void put_along_add(View x, View ids, int axis, View y) = 0;

  // Elementwise operations; `op` is an index into the lists of functors.h. All views have the sizes
  // of the output (stride 0 repeats).
  virtual void unary(int op, Constants c, View x, View y) = 0;
  // dx = dy f'(x), given y = f(x)
  virtual void unary_grad(int op, Constants c, View x, View y, View dy, View dx) = 0;
  // y = op(a, b). The views have one type, but b of a sum may have 16 bits where a and y are f32.
  virtual void binary(int op, View a, View b, View y) = 0;
  // d = dy times the derivative with respect to operand `which` (0: a, 1: b)
  virtual void binary_grad(int op, int which, View a, View b, View dy, View d) = 0;
  virtual void where(View condition, View a, View b, View y) = 0;  // condition != 0 ? a : b
  // y = alpha x + beta y; beta 0 does not read y. y may be wider than x.
  virtual void axpby(double alpha, View x, double beta, View y) = 0;

  // Reductions. y has the rank of x, with size 1 at the reduced axes; it may be f32 if x has 16
  // bits.
  virtual void reduce(Reduction op, View x, View y) = 0;
  // The index (i64) of the first maximum along the last axis; x row-major, y [.., 1].
  virtual void argmax(View x, View y) = 0;

  // Operations on each row of row-major [rows, k].
  virtual void softmax(View x, bool logarithm, View y) = 0;
  virtual void softmax_grad(View y, View dy, bool logarithm, View dx) = 0;
  // y = the cross entropy of each row of x [rows, classes] (class_targets.h), 0 for ignored rows,
  // NaN for ids that are no class. Rows of x may have gaps between them (logit_pitch()). y [rows]
  // and stats [rows, 3] (CrossEntropyStats) have the accumulation type and are row-major, but for
  // dy, which may repeat a number.
  virtual void cross_entropy(const ClassTargets& targets, View x, View y, View stats) = 0;
  // dx = dy (softmax(x) (sum_c q[c] + 2 z_loss log(sum_c exp(x[c]))) - q), with 0 in ignored rows;
  // of x's type and with its gaps, which are left as they are.
  virtual void cross_entropy_grad(const ClassTargets& targets, View x, View stats, View dy,
                                  View dx) = 0;
  // y = the attention weights of the scores x [n, queries, keys], f32 or f64, which are
  // overwritten. y is x itself, or has 16 bits and x is f32. A query without visible keys has
  // weights of 0; a query with a NaN among its visible scores has weights of NaN.
  virtual void masked_softmax(const AttentionMask& rule, View x, View y) = 0;
  // dx = the gradient of the loss with respect to the scores, from its gradient dw with respect to
  // the weights w: dx = scale w (dw - sum_s w dw / total). If w and dx have 16 bits and dw is f32,
  // the sum of w replaces `total`. dx may be w or dw.
  virtual void score_weights_grad(const AttentionMask& rule, View w, View dw, View dx) = 0;
  // Fused attention (attention_args.h): computes y and stats from q, k and v. Returns false without
  // any effect if the backend cannot; the caller then uses products and masked_softmax.
  virtual bool attention(const FusedAttention& /*attention*/) { return false; }
  // Computes the gradients of q, k and v from dy and from the inputs and outputs of attention().
  virtual bool attention_grad(const FusedAttention& /*attention*/,
                              const FusedAttentionGrad& /*grad*/) {
    return false;
  }
  // y, and the statistics of its groups, from x (norm_formulas.h). x and y are [n, t, groups,
  // channels, places] and lie alike within a block: row-major, or with channels side by side at
  // each place. stats [n, t, groups, 2] f64, row-major in the last two: mean and rstd. y may have
  // 16 bits where x is f32, if the elements of a group lie side by side.
  virtual void normalize(const Normalization& how, View x, View stats, View y) = 0;
  // The gradients, from that of y; dx has the type of x. dy is not empty. dx may be dy; x and stats
  // may repeat a sample.
  virtual void normalize_grad(const Normalization& how, View x, View stats, View dy,
                              const NormalizationGrads& grads) = 0;

  // Products. Views have rank 2 or 3 (a batch axis first; stride 0 repeats an operand over the
  // batch): c = a b + beta c, beta 0 or 1. a and b may have any strides; c is row-major in its last
  // two axes and has the dtype of a and b, or is f32 if they have 16 bits. On a CPU, the bits of an
  // element depend only on its row of a and its column of b, not on the other rows and columns,
  // because rows belong to samples. (In 16 bits this holds for rows.)
  virtual void gemm(View a, View b, double beta, View c) = 0;
  // c = a b + bias, of rank 2; bias [1, columns], of c's type. The default is a copy and a gemm.
  virtual void affine(View a, View b, View bias, View c);

  // All steps of an LSTM layer (lstm_layer.h); its views are all f32 or all f64. Writes gates and
  // all states and cells except the initial ones: z = gates + weight state + bias; i, f, o =
  // sigmoid(z), g = tanh(z), cell' = f cell + i g, state' = o tanh(cell').
  virtual void lstm(const LstmLayer& layer) = 0;
  // From dy [n, t, h], the gradient of the states after each step, computes dz [n, t, 4 h], the
  // gradient of the sums z. dstate and dcell [n, h] hold the gradients of the final state and cell
  // before the call, of the initial ones after it. squares [n, t], f64 and row-major or without
  // data: the squared norms of the rows of dz.
  virtual void lstm_grad(const LstmLayer& layer, View dy, View dz, View dstate, View dcell,
                         View squares) = 0;

  // Per-sample gradients (docs/explanation/per-sample-gradients.md). All sums are computed in
  // double. y[n] = sum_k a[n,k] b[n,k]; a and b row-major [n, k]; y f64.
  virtual void row_dot(View a, View b, View y) = 0;
  // The ghost norm's Gram form: y[n] = sum_{s,t} <a1[n,s], a2[n,t]> <b1[n,s], b2[n,t]>, the inner
  // product of sum_t b a^T for two pairs of factors; row-major [n, s, *], [n, t, *]; y f64. A
  // sample whose terms cancel so far that rounding could show in the fifth digit is recomputed in
  // f64 (gram_precision.h).
  virtual void gram_dot(View a1, View b1, View a2, View b2, View y) = 0;
  // y[n] = sum_{s,t, ids1[n,s] = ids2[n,t] >= 0} <b1[n,s], b2[n,t]>; y f64.
  virtual void onehot_dot(View ids1, View b1, View ids2, View b2, View y) = 0;
  // y[k] = sum_n w[n] x[n,k] + beta y[k]; rows with w[n] == 0 are left out, whatever their values.
  // x row-major [n, k], w f32 or f64; y may be f32 if x has 16 bits.
  virtual void weighted_sum(View x, View w, double beta, View y) = 0;
  // y[k] += sum_n round(w[n] x[n,k]), each term rounded to the nearest multiple of `spacing`, a
  // power of two; rows with w[n] == 0 are left out. x row-major [n, k], w f32 or f64, y f64. If
  // terms are below 2^51 spacings and sums below 2^53, y is exact in any order of summation.
  virtual void add_rounded(View x, View w, double spacing, View y) = 0;
  // y[o,i] += sum_n round(w[n] sum_t b[n,t,o] a[n,t,i]) without writing the samples' products to
  // memory: each is rounded as in add_rounded, as one term for every product_chain positions
  // (gemm_blocking.h), and samples with w[n] == 0 are not read. b [n, t, o] and a [n, t, i] of one
  // type, adjacent along the last axis; w [n] f64; y [o, i] f64; w and y row-major. Returns false
  // without any effect if the backend has no such kernel.
  virtual bool add_rounded_products(View /*b*/, View /*a*/, View /*w*/, double /*spacing*/,
                                    View /*y*/) {
    return false;
  }
  // Splits w[n] x[n,k] into two bf16 tensors whose sum approximates it (bf16_split.h); zeros where
  // w[n] is 0. x row-major [n, k] in bf16, w [n] f64, pieces [2, n, k] in bf16, row-major.
  virtual void scale_to_bf16x2(View x, View w, View pieces) = 0;
  // Clip factors of n samples from their gradients with respect to p parameters (clip_sample.h; its
  // enumerators name the rows below). All f64, row-major.
  //   terms [4, p, n]: squared norms, rounding error bounds of the norms, norms of the summands
  //     (term_norm), and a flag: nonzero where the squared norm must be recomputed in f64;
  //   settings [3]: the clip bound, the loss scale, and the number of valid samples; the factors of
  //     the samples beyond it are 0, whatever their terms;
  //   y [4, n]: norms, clip factors, clip factors over the loss scale, and 1 where a sample
  //     must be redone in f64 (its norm, or its sum: GradientNorm::apart).
  virtual void clip_factors(const ClipRule& rule, double margin, View terms, View settings,
                            View y) = 0;

  // Images: x [n, c, d, h, w], weights [o, c / groups, kd, kh, kw], y [n, o, d', h', w'], any
  // strides (channels-last is fastest). Weight gradients and patches are row-major; weight
  // gradients are f32 if images have 16 bits, and a bias may be f32 then.
  //
  // y = conv(x, w) + bias; bias may have no data.
  virtual void conv(View x, View w, View bias, const Window& window, View y) = 0;
  virtual void conv_data(View dy, View w, const Window& window, View dx) = 0;
  // dw = the sum over samples + beta dw.
  virtual void conv_weight(View dy, View x, const Window& window, double beta, View dw) = 0;
  // Adds weight gradients to dw, f64 and row-major: one sum for each range of samples between two
  // consecutive `ends`, rounded to a multiple of `spacing` (add_rounded). Returns false without any
  // effect if this is no faster than one conv_weight per range.
  virtual bool conv_weight_rounded(View /*dy*/, View /*x*/, const Window& /*window*/,
                                   std::span<const std::int64_t> /*ends*/, double /*spacing*/,
                                   View /*dw*/) {
    return false;
  }
  // dw += sum_n round(w[n] dw[n]) of the samples' weight gradients, as add_rounded_products: each
  // is one term, and w and dw are f64 and row-major. Returns false without any effect if the
  // backend has no such kernel for these images.
  virtual bool add_rounded_weights(View /*dy*/, View /*x*/, const Window& /*window*/, View /*w*/,
                                   double /*spacing*/, View /*dw*/) {
    return false;
  }
  // One weight gradient per sample: dw [n, o, c / groups, kd, kh, kw]. If `norms` has data and dw
  // has the accumulation type, also writes the result of conv_weight_norms to it.
  virtual void conv_weight_rows(View dy, View x, const Window& window, View dw, View norms) = 0;
  // For each sample, the squared norm of its weight gradient, without materializing it, and the
  // squared norms of its factors, from which rounding is bounded: y[n] = (|dw[n]|^2, |dy[n]|^2,
  // |x[n]|^2); y [n, 3] f64, row-major.
  virtual void conv_weight_norms(View dy, View x, const Window& window, View y) = 0;
  // The squared norms only, y [n] f64, by Gram products of pixels: |dw[n]|^2 = sum_{s,t} <dy[n,s],
  // dy[n,t]> sum_k <x[n,s+k], x[n,t+k]> over positions s, t and taps k. Recomputed in f64 as in
  // gram_dot. Returns false without any effect if the backend has no such kernel for the window;
  // the caller then uses products of patches (unfold, gram_dot).
  virtual bool conv_gram_norms(View /*dy*/, View /*x*/, const Window& /*window*/, View /*y*/) {
    return false;
  }
  // patches [n, positions, c kd kh kw]: a row for each position, with the columns (c, kd, kh, kw)
  // of all channels.
  virtual void unfold(View x, const Window& window, View patches) = 0;

  // Pooling over [n, c, d, h, w]. `argmax` (u8 or i32) is the index in the window of the first
  // maximum; NaN counts as the largest value. Padding is never chosen.
  virtual void max_pool(View x, const Window& window, View y, View argmax) = 0;
  virtual void max_pool_grad(View dy, View argmax, const Window& window, View dx) = 0;
  // Padding counts as zero. The divisor is the number of the window's elements inside the padded
  // input, or inside the input if `count_padding` is false.
  virtual void avg_pool(View x, const Window& window, bool count_padding, View y) = 0;
  virtual void avg_pool_grad(View dy, const Window& window, bool count_padding, View dx) = 0;

  // Public randomness: elements of y, row-major and of any type, become 1 with probability `keep`,
  // else 0. Row n of y uses the key key_of_row(key, rows[n][0]) and the counters from rows[n][1] on
  // (rng_counter(), dropout_counter.h); rows i64 [n, 2], row-major.
  virtual void bernoulli(PhiloxKey key, View rows, double keep, View y) = 0;

  // Secret randomness: integer noise for arrays of counts[k] elements. Each array gets the values
  // of RoundedGaussian::fill, from the next unused block of the stream. In y (i64, row-major) the
  // arrays are consecutive, each padded to a multiple of 8 elements.
  virtual void rounded_gaussian(const RoundedGaussian& gaussian, const ChaChaStream& stream,
                                std::span<const std::int64_t> counts, View y) = 0;
  // Updates the elements of all arrays (optimizer_update.h). faults[k] (i32) becomes 1 if an
  // element was left unchanged because of fault k + 1 (UpdateFault); arrays without noise do not
  // touch it.
  virtual void update(std::span<const UpdateArray> arrays, View faults) = 0;

  // Clipping. For several parameters the bounds of each sample's terms (term_bounds.h).
  virtual void term_bounds(std::span<const BoundedTerms> parameters) = 0;
  // Adds 1 to marks[n], f64, where squares[n] is cancelled (term_bounds.h).
  virtual void mark_cancelled(const CancelledSquares& squares, View marks) = 0;

  // Several arrays at once, each of any floating-point type (copied ones: of any) and without gaps.
  // y[k] = 1 if arrays[k] holds NaN or infinity, else 0; y f64, row-major.
  virtual void mark_nonfinite(std::span<const View> arrays, View y) = 0;
  // Writes zeros.
  virtual void zero_all(std::span<const View> arrays) = 0;
  // y = x, or y += x if `add`, for each pair of arrays of equal sizes and strides (row_arrays.h).
  // The types of a pair may differ if x replaces y. The default is one copy() or axpby() each.
  virtual void copy_all(std::span<const ArrayCopy> all, bool add);
  // Several row_dot(x, x, y), and several add_rounded() with the same weights (row_arrays.h), in
  // few launches. The defaults are one call each.
  virtual void squared_row_norms(std::span<const RowNorms> all);
  virtual void add_all_rounded(std::span<const RoundedRows> all, View w);
};

// The backend of a device. Throws std::invalid_argument, with the reason, if there is none.
Backend& backend(Device device);

// The CPU has two engines for products and convolutions. oneDNN is the default if it was built in;
// the environment variable SOTTO_CPU_ENGINE=portable at the first use, or set_cpu_engine(), selects
// the other.
enum class CpuEngine { portable, onednn };
// Throws std::invalid_argument if the engine was not built in.
void set_cpu_engine(CpuEngine engine);
bool has_cpu_engine(CpuEngine engine);
// Replaces the CPU's engines by another backend until set_cpu_engine() is called. It receives views
// of host memory and must outlive its use. Tests run kernels of other devices this way.
void set_cpu_backend(Backend& backend);

}  // namespace sotto
