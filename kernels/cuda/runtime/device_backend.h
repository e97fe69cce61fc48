// The primitives as GPUs run them: a body for each element, or for each team of threads. `Exec`
// runs the bodies. CudaExec (execution.cuh) launches them on a GPU; the tests run them on the host
// (tests/fake_gpu/host_executor.h), which checks their arithmetic and indices on machines without a
// GPU.
//
// An Exec is made for one call of a primitive, from its name and its views, and has
//   for_each(count, f)              f(i) for every i in [0, count), in parallel
//   for_each_team(count, width, f)  f(team, i) for every i, by all threads of a team of about
//                                   `width`; a team has rank(), size() and fold(f, x), which folds
//                                   the threads' x in a fixed order and returns it to all threads
//   for_each_tile(count, f)         f(block, shared, i) for every i < count, by blocks of
//   F::threads
//                                   threads with an F::Shared in common (rounded_product.h)
//   has_matrix_units()              whether those blocks can load and multiply matrices
//   copy(from, to, bytes), gemm(a, b, beta, c), device()
//   bring(from, to, bytes)          a copy from the host; `from` may be reused when it returns
//   scratch_bytes()                 limit of a primitive's scratch, if one sample needs no more
//   conv_plan(problem), attention_plan(problem)
//                                   the library's plan, or nullptr (conv_problem.h,
//                                   attention_problem.h)
//   tf32()                          whether convolutions may round f32 factors to 11 bits
// Calls run one after the other.
//
// The members are defined in the headers of kernels/cuda that the comments below name, and compiled
// by the .cu files of these names.
#pragma once

#include <initializer_list>

#include "kernels/backend.h"

namespace sotto {

template <class Exec>
class DeviceBackend : public Backend {
 public:
  // cuda_elementwise.h
  void fill(double value, View y) override;
  void copy(View x, View y) override;
  void binary(int op, View a, View b, View y) override;
  void binary_grad(int op, int which, View a, View b, View dy, View d) override;
  void where(View condition, View a, View b, View y) override;
  void axpby(double alpha, View x, double beta, View y) override;

  // unary.h
  void unary(int op, Constants c, View x, View y) override;
  void unary_grad(int op, Constants c, View x, View y, View dy, View dx) override;

  // index.h
  void gather(View x, View ids, int axis, View y) override;
  void scatter_add(View x, View ids, int axis, View y) override;
  void take_along(View x, View ids, int axis, View y) override;
  void put_along_add(View x, View ids, int axis, View y) override;
  void bernoulli(PhiloxKey key, View rows, double keep, View y) override;

  // reduce.h
  void reduce(Reduction op, View x, View y) override;
  void argmax(View x, View y) override;

  // rowwise.h
  void softmax(View x, bool logarithm, View y) override;
  void softmax_grad(View y, View dy, bool logarithm, View dx) override;
  void masked_softmax(const AttentionMask& rule, View x, View y) override;
  void score_weights_grad(const AttentionMask& rule, View w, View dw, View dx) override;

  // cuda_normalization.h
  void normalize(const Normalization& how, View x, View stats, View y) override;
  void normalize_grad(const Normalization& how, View x, View stats, View dy,
                      const NormalizationGrads& grads) override;

  // cross_entropy.h
  void cross_entropy(const ClassTargets& targets, View x, View y, View stats) override;
  void cross_entropy_grad(const ClassTargets& targets, View x, View stats, View dy,
                          View dx) override;

  // cuda_lstm.h
  void lstm(const LstmLayer& layer) override;
  void lstm_grad(const LstmLayer& layer, View dy, View dz, View dstate, View dcell,
                 View squares) override;

  // cuda_per_sample.h
  void row_dot(View a, View b, View y) override;
  void gram_dot(View a1, View b1, View a2, View b2, View y) override;
  void onehot_dot(View ids1, View b1, View ids2, View b2, View y) override;
  void weighted_sum(View x, View w, double beta, View y) override;
  void add_rounded(View x, View w, double spacing, View y) override;
  void scale_to_bf16x2(View x, View w, View pieces) override;

  // rounded_product.h
  bool add_rounded_products(View b, View a, View w, double spacing, View y) override;

  // clip_terms.h
  void clip_factors(const ClipRule& rule, double margin, View terms, View settings,
                    View y) override;
  void term_bounds(std::span<const BoundedTerms> parameters) override;
  void mark_cancelled(const CancelledSquares& squares, View marks) override;
  void mark_nonfinite(std::span<const View> arrays, View y) override;
  void zero_all(std::span<const View> arrays) override;
  void squared_row_norms(std::span<const RowNorms> all) override;
  void add_all_rounded(std::span<const RoundedRows> all, View w) override;

  // copy_all.h
  void copy_all(std::span<const ArrayCopy> all, bool add) override;

  // cuda_attention.h
  bool attention(const FusedAttention& attention) override;
  bool attention_grad(const FusedAttention& attention, const FusedAttentionGrad& grad) override;

  // conv.h
  void conv(View x, View w, View bias, const Window& window, View y) override;
  void conv_data(View dy, View w, const Window& window, View dx) override;
  void conv_weight(View dy, View x, const Window& window, double beta, View dw) override;
  void conv_weight_rows(View dy, View x, const Window& window, View dw, View norms) override;
  void conv_weight_norms(View dy, View x, const Window& window, View y) override;
  void unfold(View x, const Window& window, View patches) override;

  // pool.h
  void max_pool(View x, const Window& window, View y, View argmax) override;
  void max_pool_grad(View dy, View argmax, const Window& window, View dx) override;
  void avg_pool(View x, const Window& window, bool count_padding, View y) override;
  void avg_pool_grad(View dy, const Window& window, bool count_padding, View dx) override;

  // noisy_update.h
  void rounded_gaussian(const RoundedGaussian& gaussian, const ChaChaStream& stream,
                        std::span<const std::int64_t> counts, View y) override;
  void update(std::span<const UpdateArray> arrays, View faults) override;

 protected:
  using Views = std::initializer_list<const View*>;
  // The Exec for one call of the primitive `op`.
  virtual Exec execution(const char* op, Views views) = 0;
};

}  // namespace sotto
