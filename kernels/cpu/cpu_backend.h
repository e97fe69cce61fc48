// The CPU's backend: portable loops for all primitives. OnednnBackend overrides convolutions, if
// oneDNN was built in.
#pragma once

#include "kernels/backend.h"

namespace sotto {

class CpuBackend : public Backend {
 public:
  std::string name() const override { return "cpu (portable)"; }
  CostModel costs(Dtype factors) const override;
  std::int64_t chain_of_products(Dtype factors) const override;

  void fill(double value, View y) override;
  void copy(View x, View y) override;
  void gather(View x, View ids, int axis, View y) override;
  void scatter_add(View x, View ids, int axis, View y) override;
  void take_along(View x, View ids, int axis, View y) override;
  void put_along_add(View x, View ids, int axis, View y) override;

  void unary(int op, Constants c, View x, View y) override;
  void unary_grad(int op, Constants c, View x, View y, View dy, View dx) override;
  void binary(int op, View a, View b, View y) override;
  void binary_grad(int op, int which, View a, View b, View dy, View d) override;
  void where(View condition, View a, View b, View y) override;
  void axpby(double alpha, View x, double beta, View y) override;

  void reduce(Reduction op, View x, View y) override;
  void argmax(View x, View y) override;

  void softmax(View x, bool logarithm, View y) override;
  void softmax_grad(View y, View dy, bool logarithm, View dx) override;
  void cross_entropy(const ClassTargets& targets, View x, View y, View stats) override;
  void cross_entropy_grad(const ClassTargets& targets, View x, View stats, View dy,
                          View dx) override;
  void masked_softmax(const AttentionMask& rule, View x, View y) override;
  void score_weights_grad(const AttentionMask& rule, View w, View dw, View dx) override;
  void normalize(const Normalization& how, View x, View stats, View y) override;
  void normalize_grad(const Normalization& how, View x, View stats, View dy,
                      const NormalizationGrads& grads) override;

  void gemm(View a, View b, double beta, View c) override;
  void affine(View a, View b, View bias, View c) override;

  void lstm(const LstmLayer& layer) override;
  void lstm_grad(const LstmLayer& layer, View dy, View dz, View dstate, View dcell,
                 View squares) override;

  void row_dot(View a, View b, View y) override;
  void gram_dot(View a1, View b1, View a2, View b2, View y) override;
  void onehot_dot(View ids1, View b1, View ids2, View b2, View y) override;
  void weighted_sum(View x, View w, double beta, View y) override;
  void add_rounded(View x, View w, double spacing, View y) override;
  bool add_rounded_products(View b, View a, View w, double spacing, View y) override;
  void scale_to_bf16x2(View x, View w, View pieces) override;
  void clip_factors(const ClipRule& rule, double margin, View terms, View settings,
                    View y) override;
  void term_bounds(std::span<const BoundedTerms> parameters) override;
  void mark_cancelled(const CancelledSquares& squares, View marks) override;
  void mark_nonfinite(std::span<const View> arrays, View y) override;
  void zero_all(std::span<const View> arrays) override;

  void conv(View x, View w, View bias, const Window& window, View y) override;
  void conv_data(View dy, View w, const Window& window, View dx) override;
  void conv_weight(View dy, View x, const Window& window, double beta, View dw) override;
  bool add_rounded_weights(View dy, View x, const Window& window, View w, double spacing,
                           View dw) override;
  void conv_weight_rows(View dy, View x, const Window& window, View dw, View norms) override;
  void conv_weight_norms(View dy, View x, const Window& window, View y) override;
  bool conv_gram_norms(View dy, View x, const Window& window, View y) override;
  void unfold(View x, const Window& window, View patches) override;

  void max_pool(View x, const Window& window, View y, View argmax) override;
  void max_pool_grad(View dy, View argmax, const Window& window, View dx) override;
  void avg_pool(View x, const Window& window, bool count_padding, View y) override;
  void avg_pool_grad(View dy, const Window& window, bool count_padding, View dx) override;

  void bernoulli(PhiloxKey key, View rows, double keep, View y) override;

  void rounded_gaussian(const RoundedGaussian& gaussian, const ChaChaStream& stream,
                        std::span<const std::int64_t> counts, View y) override;
  void update(std::span<const UpdateArray> arrays, View faults) override;
};

class OnednnBackend final : public CpuBackend {
 public:
  std::string name() const override { return "cpu (oneDNN)"; }

  void conv(View x, View w, View bias, const Window& window, View y) override;
  void conv_data(View dy, View w, const Window& window, View dx) override;
  void conv_weight(View dy, View x, const Window& window, double beta, View dw) override;
  bool conv_weight_rounded(View dy, View x, const Window& window,
                           std::span<const std::int64_t> ends, double spacing, View dw) override;
  void conv_weight_rows(View dy, View x, const Window& window, View dw, View norms) override;
  void conv_weight_norms(View dy, View x, const Window& window, View y) override;
};

// The oneDNN engine, or nullptr if it was not built in. Meson picks its source: onednn.cpp or
// no_onednn.cpp.
Backend* onednn_backend();

// Makes backend(cpu) return `observer` instead of the selected engine, until nullptr is passed
// (KernelProfile).
void observe_cpu_backend(Backend* observer);

}  // namespace sotto
