// The primitives a device supplies. One class for each device; the CPU's is in cpu/, a GPU's
// implements the same list.
//
// Contract: views in, views out. A primitive never allocates device memory, never checks and never
// differentiates: callers (tensor_ops.h) have checked shapes and dtypes. Inputs come first, outputs
// last; an output never overlaps an input unless it is the same view and the primitive is
// elementwise. Storage may be narrow; arithmetic and reductions are float or wider (double for
// f64). Sums have a fixed order: same inputs, same device, same bits.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/device.h"
#include "core/random/philox.h"
#include "core/view.h"
#include "kernels/host_device/geometry.h"

namespace sotto {

class RoundedGaussian;
struct ChaChaStream;
struct ClipRule;
struct FusedAttention;
struct FusedAttentionGrad;
struct LstmLayer;
struct UpdateArray;

enum class Reduction { sum, max, min, product };

// Up to two numbers that an elementwise operation is configured by (a slope, limits, an exponent).
struct Constants {
  double a = 0;
  double b = 0;
};

// Which of its two arguments a derivative depends on (functors.h).
enum class Reads { nothing, first, second, both };
constexpr bool reads_first(Reads reads) { return reads == Reads::first || reads == Reads::both; }
constexpr bool reads_second(Reads reads) { return reads == Reads::second || reads == Reads::both; }

// Machine figures behind the choice between Gram and rows (docs/per_sample_gradients.md): constants
// and not measurements at run time, so that the same run takes the same route.
struct Costs {
  double gram_flops;  // per second, in the small batched products of a Gram norm
  double rows_flops;  // per second, in per-sample weight gradients
  double sum_flops;   // per second, in one large product over the whole batch
  double bytes;       // per second, streaming memory
  // Additions of products of pixels per second in conv_gram_norms; 0 where that is not to be had.
  double shifted_adds = 0;
};

// How the weights of queries for keys come of their scores: each query's weights are `total` times
// the softmax of `scale` times its scores, masked.
struct AttentionMask {
  double scale = 1;
  double total = 1;
  // Row r is of query t = first_query + r, which sees the first always_visible keys and, counted
  // from behind these, the keys s <= t.
  bool causal = false;
  std::int64_t first_query = 0;
  std::int64_t always_visible = 0;
  // At most most_score_masks, of the scores' sizes (stride 0 repeats): i64 hides keys where it is
  // not 0, one of the scores' type is added.
  std::span<const View> masks;

  HD bool may_hide() const { return causal || !masks.empty(); }
  // How many keys, of so many, do not come too late for a row's query.
  HD std::int64_t in_time(std::int64_t row, std::int64_t keys) const {
    const std::int64_t end = always_visible + first_query + row + 1;
    return causal && end < keys ? end : keys;
  }
};
inline constexpr std::size_t most_score_masks = 4;

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;
  virtual Costs costs() const = 0;

  // Movement.
  virtual void fill(double value, View y) = 0;
  virtual void copy(View x, View y) = 0;  // same sizes; converts the dtype
  // y[.., k, ..] = x[.., ids[k], ..] along `axis`; a negative id gives zeros. ids: i64, one axis.
  virtual void gather(View x, View ids, int axis, View y) = 0;
  // y[.., ids[k m + j], ..] += x[.., k, ..] for j < m, where there are m ids for each slice of x,
  // one or more; negative ids are skipped. ids: i64, one axis.
  virtual void scatter_add(View x, View ids, int axis, View y) = 0;
  // An id for each element: y[i, j, k] = x[i, ids[i, j, k], k] for axis 1, and so on. ids: i64, of
  // y's sizes, which are at most x's in the other axes.
  virtual void take_along(View x, View ids, int axis, View y) = 0;
  // Its transpose: y[i, ids[i, j, k], k] += x[i, j, k].
  virtual void put_along_add(View x, View ids, int axis, View y) = 0;

  // Elementwise; `op` indexes the lists of functors.h. All views have the sizes of the output
  // (stride 0 repeats).
  virtual void unary(int op, Constants c, View x, View y) = 0;
  // dx = dy f'(x), given y = f(x)
  virtual void unary_grad(int op, Constants c, View x, View y, View dy, View dx) = 0;
  virtual void binary(int op, View a, View b, View y) = 0;
  // d = dy times the derivative with respect to operand `which` (0: a, 1: b)
  virtual void binary_grad(int op, int which, View a, View b, View dy, View d) = 0;
  virtual void where(View condition, View a, View b, View y) = 0;  // condition != 0 ? a : b
  // y = alpha x + beta y; beta 0 does not read y. y may be wider than x.
  virtual void axpby(double alpha, View x, double beta, View y) = 0;

  // Reductions. y has the rank of x, with size 1 at the reduced axes; it may be f32 where x is
  // narrower.
  virtual void reduce(Reduction op, View x, View y) = 0;
  // Along the last axis, row-major x: i64 index of the first largest value; y [.., 1].
  virtual void argmax(View x, View y) = 0;

  // Row by row, row-major [rows, k].
  virtual void softmax(View x, bool logarithm, View y) = 0;
  virtual void softmax_grad(View y, View dy, bool logarithm, View dx) = 0;
  // y = weights of the scores x [n, queries, keys] in f32 or f64, which are used up; y is x, or of
  // 16 bits beside an f32 x. A query all of whose keys are hidden has weights of 0; one that sees a
  // NaN has NaN for the keys it sees.
  virtual void masked_softmax(const AttentionMask& rule, View x, View y) = 0;
  // dx = slopes of the loss in the scores, by its slopes dw in weights w that a rule made: scale w
  // (dw - sum_s w dw / total), total being the weights' own sum where w, and with it dx, has 16
  // bits beside an f32 dw. dx may be w or dw.
  virtual void score_weights_grad(const AttentionMask& rule, View w, View dw, View dx) = 0;
  // Attention in one kernel (fused_attention.h), from q, k and v to y and stats. False, and nothing
  // is done, where the backend has none: products and masked_softmax are another way.
  virtual bool attention(const FusedAttention& /*attention*/) { return false; }
  // From dy, and from what attention() read and wrote, to the gradients of q, k and v.
  virtual bool attention_grad(const FusedAttention& /*attention*/,
                              const FusedAttentionGrad& /*grad*/) {
    return false;
  }
  // y = (x - mean) rstd with rstd [rows, 1] = 1 / sqrt(variance + eps), in f32 where x is narrower;
  // `centered` false leaves the mean out (root mean square).
  virtual void normalize(View x, double eps, bool centered, View y, View rstd) = 0;
  virtual void normalize_grad(View y, View rstd, View dy, bool centered, View dx) = 0;

  // Products. Views of rank 2 or 3 (a batch first; stride 0 repeats an operand over the batch):
  // c = a b + beta c, beta 0 or 1. Any strides in a and b; c row-major in its last two axes, of the
  // type of both factors, or f32 where that has 16 bits.
  // On a CPU the bits of an element depend on its row of a and its column of b alone, whatever else
  // is multiplied with them: rows are samples'. (In 16 bits that is so for rows.)
  virtual void gemm(View a, View b, double beta, View c) = 0;
  // c = a b + bias, of rank 2; bias [1, columns], of c's type. By a copy and a gemm where a device
  // has nothing better.
  virtual void affine(View a, View b, View bias, View c);

  // All steps of a layer of long short-term memory (lstm.h), all of whose views are f32 or f64.
  // Fills all but the first state and cell: z = gates + weight state + bias; i, f, o = sigmoid(z),
  // g = tanh(z), cell' = f cell + i g, state' = o tanh(cell').
  virtual void lstm(const LstmLayer& layer) = 0;
  // From dy [n, t, h], of the states after each step, to dz [n, t, 4 h], of the sums. dstate and
  // dcell [n, h] are the gradients of the last state and cell before, of the first ones after.
  // squares [n, t], f64 and row-major or without data: the squared norms of the rows of dz.
  virtual void lstm_grad(const LstmLayer& layer, View dy, View dz, View dstate, View dcell,
                         View squares) = 0;

  // Per-sample gradients (docs/per_sample_gradients.md). All sums are taken in double.
  // y[n] = sum_k a[n,k] b[n,k]; a and b row-major [n, k]; y f64.
  virtual void row_dot(View a, View b, View y) = 0;
  // y[n] = sum_{s,t} <a1[n,s], a2[n,t]> <b1[n,s], b2[n,t]>, the inner product of sum_t b a^T for
  // two factors; row-major [n, s, *], [n, t, *]; y f64. Where the terms cancel so far that the
  // products' rounding could show in the fifth digit, the sample is computed again in double.
  virtual void gram_dot(View a1, View b1, View a2, View b2, View y) = 0;
  // y[n] = sum_{s,t, ids1[n,s] = ids2[n,t] >= 0} <b1[n,s], b2[n,t]>; y f64.
  virtual void onehot_dot(View ids1, View b1, View ids2, View b2, View y) = 0;
  // y[k] = sum_n w[n] x[n,k] + beta y[k] over the rows with w[n] != 0 alone; x row-major [n, k],
  // w f32 or f64; y may be f32 where x is narrower.
  virtual void weighted_sum(View x, View w, double beta, View y) = 0;
  // y[k] += sum_n round(w[n] x[n,k]) over the rows with w[n] != 0 alone, each term rounded to the
  // nearest multiple of `spacing`, a power of two; x row-major [n, k], w f32 or f64, y f64. With
  // terms below 2^51 spacings and sums below 2^53 of them, whatever the order of terms, y is exact.
  virtual void add_rounded(View x, View w, double spacing, View y) = 0;
  // Two tensors that add up to w[n] x[n,k] as far as bf16_split.h says, zeros where w[n] is 0: x
  // row-major [n, k] in bf16, w [n] f64, pieces [2, n, k] in bf16, row-major.
  virtual void scale_to_bf16x2(View x, View w, View pieces) = 0;
  // The factors of n samples' gradients with regard to p parameters, as clip_factor.h says, whose
  // enumerators name the rows. All f64, row-major.
  //   terms [3, p, n]: squared norms, what rounding may add to the norms, and where a squared norm
  //     is in doubt, which is where there is not 0;
  //   settings [3]: the bound, what the loss was multiplied by, and how many samples count: the
  //     others' factors are 0, whatever their terms are;
  //   y [4, n]: norms, factors, factors over the loss' multiple, and 1 where a norm is in doubt.
  virtual void clip_factors(const ClipRule& rule, double margin, View terms, View settings,
                            View y) = 0;

  // Images: x [n, c, d, h, w], weights [o, c / groups, kd, kh, kw], y [n, o, d', h', w'], any
  // strides (channels-last is fastest). Weight gradients and patches are row-major; weight
  // gradients are f32 where images are narrower, and a bias may be f32 beside them.
  // y = conv(x, w) + bias; bias may have no data.
  virtual void conv(View x, View w, View bias, const Window& window, View y) = 0;
  virtual void conv_data(View dy, View w, const Window& window, View dx) = 0;
  // dw = sum over samples + beta dw
  virtual void conv_weight(View dy, View x, const Window& window, double beta, View dw) = 0;
  // Adds to dw, f64 and row-major, the sums over the samples up to each of the ends, each rounded
  // to a multiple of `spacing` (add_rounded). Or returns false and does nothing: then nothing is
  // faster here than conv_weight for each of them.
  virtual bool conv_weight_rounded(View /*dy*/, View /*x*/, const Window& /*window*/,
                                   std::span<const std::int64_t> /*ends*/, double /*spacing*/,
                                   View /*dw*/) {
    return false;
  }
  // One weight gradient for each sample: dw [n, o, c / groups, kd, kh, kw]; and, where dw is in the
  // type of the arithmetic, what conv_weight_norms gives of them, unless `norms` has no data.
  virtual void conv_weight_rows(View dy, View x, const Window& window, View dw, View norms) = 0;
  // The squared norms of these, without writing them, and of what they are made of, by which their
  // rounding is to be judged: y[n] = (|dw[n]|^2, |dy[n]|^2, |x[n]|^2); y [n, 3] f64, row-major.
  virtual void conv_weight_norms(View dy, View x, const Window& window, View y) = 0;
  // The squared norms alone, y [n] f64, by Gram products of pixels: |dw[n]|^2 = sum_{s,t} <dy[n,s],
  // dy[n,t]> sum_k <x[n,s+k], x[n,t+k]> over positions s, t and taps k. Computed again in double as
  // in gram_dot. False, and nothing is done, where the backend has no such kernel for the window;
  // products of patches (unfold, gram_dot) are another way.
  virtual bool conv_gram_norms(View /*dy*/, View /*x*/, const Window& /*window*/, View /*y*/) {
    return false;
  }
  // Column (c, kd, kh, kw) of row (position): patches [n, positions, c kd kh kw] of all channels.
  virtual void unfold(View x, const Window& window, View patches) = 0;

  // Pooling over [n, c, d, h, w]. `chosen` (u8 or i32) is the index in the window of the first
  // maximum; NaN counts as largest. Padding is never chosen.
  virtual void max_pool(View x, const Window& window, View y, View chosen) = 0;
  virtual void max_pool_grad(View dy, View chosen, const Window& window, View dx) = 0;
  // Padding counts as zero; the divisor is the window's part inside the padded input, or inside
  // the input when `count_padding` is false.
  virtual void avg_pool(View x, const Window& window, bool count_padding, View y) = 0;
  virtual void avg_pool_grad(View dy, const Window& window, bool count_padding, View dx) = 0;

  // Public randomness: elements of y, row-major and of any type, become 1 with probability `keep`,
  // else 0. Row n of y is drawn by key_of_row(key, rows[n][0]), its elements by rows[n][1] and on
  // as rng_counter says (dropout_counter.h); rows i64 [n, 2], row-major.
  virtual void bernoulli(PhiloxKey key, View rows, double keep, View y) = 0;

  // Secret randomness: whole-number noise for arrays of counts[k] elements. What
  // RoundedGaussian::fill draws for one array after the other, each from a new block of the stream
  // on; in y (i64, row-major) an array begins at a multiple of 8 elements, right after the last.
  virtual void rounded_gaussian(const RoundedGaussian& gaussian, const ChaChaStream& stream,
                                std::span<const std::int64_t> counts, View y) = 0;
  // The elements of all arrays move as optimizer_update.h says. faults[k] (i32) becomes 1 where an
  // element was left alone for fault k + 1 (UpdateFault); without noise it is not touched.
  virtual void update(std::span<const UpdateArray> arrays, View faults) = 0;
};

// The backend of a device. Throws std::invalid_argument, with the reason, when there is none.
Backend& backend(Device device);

// The CPU has two engines for products and convolutions; oneDNN is taken where it was built in,
// unless the environment variable SOTTO_CPU_ENGINE says "portable" at the first use or this is
// called.
enum class CpuEngine { portable, onednn };
// Throws std::invalid_argument when the engine was not built in.
void set_cpu_engine(CpuEngine engine);
bool has_cpu_engine(CpuEngine engine);
// Puts another backend in the place of the CPU's engines, until set_cpu_engine is called: it gets
// views of host memory, and must stay alive. Tests run kernels of other devices so.
void set_cpu_backend(Backend& backend);

}  // namespace sotto
