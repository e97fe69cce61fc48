// A GPU's backend for views of host memory, so that the tests of primitives run on GPUs unchanged.
#pragma once

#include <list>

#include "core/random/philox.h"
#include "core/tensor.h"
#include "kernels/backend.h"
#include "kernels/host_device/attention_args.h"
#include "kernels/host_device/class_targets.h"
#include "kernels/host_device/lstm_layer.h"
#include "kernels/host_device/norm_formulas.h"
#include "kernels/host_device/row_arrays.h"
#include "kernels/host_device/term_bounds.h"

namespace sotto {

// Copies the views of one call to a device, and back when the call is over.
class Stage {
 public:
  explicit Stage(Device device) : device_(device) {}
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
  ~Stage() noexcept(false);

  // A view with equal sizes and strides on the device; views of one host address share memory
  // there.
  View operator()(const View& host);

 private:
  struct Piece {
    Piece(void* host, std::size_t bytes, Device device) : host(host), storage(bytes, device) {}
    void* host;
    Storage storage;
  };
  Device device_;
  std::list<Piece> pieces_;
};

class StagedBackend final : public Backend {
 public:
  explicit StagedBackend(Device device) : device_(device) {}
  std::string name() const override { return on().name() + ", staged"; }
  CostModel costs(Dtype factors) const override { return on().costs(factors); }
  std::int64_t chain_of_products(Dtype x) const override { return on().chain_of_products(x); }

  void fill(double value, View y) override {
    run([&](Stage& s) { on().fill(value, s(y)); });
  }
  void copy(View x, View y) override {
    run([&](Stage& s) { on().copy(s(x), s(y)); });
  }
  void gather(View x, View ids, int axis, View y) override {
    run([&](Stage& s) { on().gather(s(x), s(ids), axis, s(y)); });
  }
  void scatter_add(View x, View ids, int axis, View y) override {
    run([&](Stage& s) { on().scatter_add(s(x), s(ids), axis, s(y)); });
  }
  void take_along(View x, View ids, int axis, View y) override {
    run([&](Stage& s) { on().take_along(s(x), s(ids), axis, s(y)); });
  }
  void put_along_add(View x, View ids, int axis, View y) override {
    run([&](Stage& s) { on().put_along_add(s(x), s(ids), axis, s(y)); });
  }
  void unary(int op, Constants c, View x, View y) override {
    run([&](Stage& s) { on().unary(op, c, s(x), s(y)); });
  }
  void unary_grad(int op, Constants c, View x, View y, View dy, View dx) override {
    run([&](Stage& s) { on().unary_grad(op, c, s(x), s(y), s(dy), s(dx)); });
  }
  void binary(int op, View a, View b, View y) override {
    run([&](Stage& s) { on().binary(op, s(a), s(b), s(y)); });
  }
  void binary_grad(int op, int which, View a, View b, View dy, View d) override {
    run([&](Stage& s) { on().binary_grad(op, which, s(a), s(b), s(dy), s(d)); });
  }
  void where(View condition, View a, View b, View y) override {
    run([&](Stage& s) { on().where(s(condition), s(a), s(b), s(y)); });
  }
  void axpby(double alpha, View x, double beta, View y) override {
    run([&](Stage& s) { on().axpby(alpha, s(x), beta, s(y)); });
  }
  void reduce(Reduction op, View x, View y) override {
    run([&](Stage& s) { on().reduce(op, s(x), s(y)); });
  }
  void argmax(View x, View y) override {
    run([&](Stage& s) { on().argmax(s(x), s(y)); });
  }
  void softmax(View x, bool logarithm, View y) override {
    run([&](Stage& s) { on().softmax(s(x), logarithm, s(y)); });
  }
  void softmax_grad(View y, View dy, bool logarithm, View dx) override {
    run([&](Stage& s) { on().softmax_grad(s(y), s(dy), logarithm, s(dx)); });
  }
  void cross_entropy(const ClassTargets& targets, View x, View y, View stats) override {
    run([&](Stage& s) { on().cross_entropy(staged(targets, s), s(x), s(y), s(stats)); });
  }
  void cross_entropy_grad(const ClassTargets& targets, View x, View stats, View dy,
                          View dx) override {
    run([&](Stage& s) {
      on().cross_entropy_grad(staged(targets, s), s(x), s(stats), s(dy), s(dx));
    });
  }
  void masked_softmax(const AttentionMask& rule, View x, View y) override {
    run([&](Stage& s) {
      std::vector<View> there;
      for (const View& mask : rule.masks) there.push_back(s(mask));
      AttentionMask staged = rule;
      staged.masks = there;
      on().masked_softmax(staged, s(x), s(y));
    });
  }
  void score_weights_grad(const AttentionMask& rule, View w, View dw, View dx) override {
    run([&](Stage& s) { on().score_weights_grad(rule, s(w), s(dw), s(dx)); });
  }
  bool attention(const FusedAttention& a) override {
    bool done = false;
    run([&](Stage& s) { done = on().attention(staged(a, s)); });
    return done;
  }
  bool attention_grad(const FusedAttention& a, const FusedAttentionGrad& grad) override {
    bool done = false;
    run([&](Stage& s) {
      done = on().attention_grad(staged(a, s), {s(grad.dy), s(grad.dq), s(grad.dk), s(grad.dv)});
    });
    return done;
  }
  void normalize(const Normalization& how, View x, View stats, View y) override {
    run([&](Stage& s) { on().normalize(staged(how, s), s(x), s(stats), s(y)); });
  }
  void normalize_grad(const Normalization& how, View x, View stats, View dy,
                      const NormalizationGrads& grads) override {
    run([&](Stage& s) {
      on().normalize_grad(staged(how, s), s(x), s(stats), s(dy),
                          {s(grads.dx), s(grads.dweight), s(grads.dbias)});
    });
  }
  void gemm(View a, View b, double beta, View c) override {
    run([&](Stage& s) { on().gemm(s(a), s(b), beta, s(c)); });
  }
  void lstm(const LstmLayer& layer) override {
    run([&](Stage& s) { on().lstm(staged(layer, s)); });
  }
  void lstm_grad(const LstmLayer& layer, View dy, View dz, View dstate, View dcell,
                 View squares) override {
    run([&](Stage& s) {
      on().lstm_grad(staged(layer, s), s(dy), s(dz), s(dstate), s(dcell), s(squares));
    });
  }
  void row_dot(View a, View b, View y) override {
    run([&](Stage& s) { on().row_dot(s(a), s(b), s(y)); });
  }
  void gram_dot(View a1, View b1, View a2, View b2, View y) override {
    run([&](Stage& s) { on().gram_dot(s(a1), s(b1), s(a2), s(b2), s(y)); });
  }
  void onehot_dot(View ids1, View b1, View ids2, View b2, View y) override {
    run([&](Stage& s) { on().onehot_dot(s(ids1), s(b1), s(ids2), s(b2), s(y)); });
  }
  void weighted_sum(View x, View w, double beta, View y) override {
    run([&](Stage& s) { on().weighted_sum(s(x), s(w), beta, s(y)); });
  }
  void add_rounded(View x, View w, double spacing, View y) override {
    run([&](Stage& s) { on().add_rounded(s(x), s(w), spacing, s(y)); });
  }
  void scale_to_bf16x2(View x, View w, View pieces) override {
    run([&](Stage& s) { on().scale_to_bf16x2(s(x), s(w), s(pieces)); });
  }
  void clip_factors(const ClipRule& rule, double margin, View terms, View settings,
                    View y) override {
    run([&](Stage& s) { on().clip_factors(rule, margin, s(terms), s(settings), s(y)); });
  }
  void term_bounds(std::span<const BoundedTerms> parameters) override {
    run([&](Stage& s) {
      std::vector<BoundedTerms> there;
      for (const BoundedTerms& one : parameters)
        there.push_back(
            {one.bounds, s(one.a), s(one.b), s(one.error_bounds), s(one.term_norms), s(one.lost)});
      on().term_bounds(there);
    });
  }
  void squared_row_norms(std::span<const RowNorms> all) override {
    run([&](Stage& s) {
      std::vector<RowNorms> there;
      for (const RowNorms& one : all) there.push_back({s(one.x), s(one.y)});
      on().squared_row_norms(there);
    });
  }
  void add_all_rounded(std::span<const RoundedRows> all, View w) override {
    run([&](Stage& s) {
      std::vector<RoundedRows> there;
      for (const RoundedRows& one : all) there.push_back({s(one.x), one.spacing, s(one.y)});
      on().add_all_rounded(there, s(w));
    });
  }
  void mark_cancelled(const CancelledSquares& squares, View marks) override {
    run([&](Stage& s) {
      const CancelledSquares staged{s(squares.squares), s(squares.a), s(squares.b), squares.times,
                                    squares.share};
      on().mark_cancelled(staged, s(marks));
    });
  }
  void mark_nonfinite(std::span<const View> arrays, View y) override {
    run([&](Stage& s) { on().mark_nonfinite(staged(arrays, s), s(y)); });
  }
  void zero_all(std::span<const View> arrays) override {
    run([&](Stage& s) { on().zero_all(staged(arrays, s)); });
  }
  void copy_all(std::span<const ArrayCopy> all, bool add) override {
    run([&](Stage& s) {
      std::vector<ArrayCopy> there;
      for (const ArrayCopy& one : all) there.push_back({s(one.x), s(one.y)});
      on().copy_all(there, add);
    });
  }
  void conv(View x, View w, View bias, const Window& window, View y) override {
    run([&](Stage& s) { on().conv(s(x), s(w), s(bias), window, s(y)); });
  }
  void conv_data(View dy, View w, const Window& window, View dx) override {
    run([&](Stage& s) { on().conv_data(s(dy), s(w), window, s(dx)); });
  }
  void conv_weight(View dy, View x, const Window& window, double beta, View dw) override {
    run([&](Stage& s) { on().conv_weight(s(dy), s(x), window, beta, s(dw)); });
  }
  void conv_weight_rows(View dy, View x, const Window& window, View dw, View norms) override {
    run([&](Stage& s) { on().conv_weight_rows(s(dy), s(x), window, s(dw), s(norms)); });
  }
  void conv_weight_norms(View dy, View x, const Window& window, View y) override {
    run([&](Stage& s) { on().conv_weight_norms(s(dy), s(x), window, s(y)); });
  }
  bool add_rounded_products(View b, View a, View w, double spacing, View y) override {
    bool done = false;
    run([&](Stage& s) { done = on().add_rounded_products(s(b), s(a), s(w), spacing, s(y)); });
    return done;
  }
  bool conv_gram_norms(View dy, View x, const Window& window, View y) override {
    bool done = false;
    run([&](Stage& s) { done = on().conv_gram_norms(s(dy), s(x), window, s(y)); });
    return done;
  }
  void unfold(View x, const Window& window, View patches) override {
    run([&](Stage& s) { on().unfold(s(x), window, s(patches)); });
  }
  void max_pool(View x, const Window& window, View y, View argmax) override {
    run([&](Stage& s) { on().max_pool(s(x), window, s(y), s(argmax)); });
  }
  void max_pool_grad(View dy, View argmax, const Window& window, View dx) override {
    run([&](Stage& s) { on().max_pool_grad(s(dy), s(argmax), window, s(dx)); });
  }
  void avg_pool(View x, const Window& window, bool count_padding, View y) override {
    run([&](Stage& s) { on().avg_pool(s(x), window, count_padding, s(y)); });
  }
  void avg_pool_grad(View dy, const Window& window, bool count_padding, View dx) override {
    run([&](Stage& s) { on().avg_pool_grad(s(dy), window, count_padding, s(dx)); });
  }
  void bernoulli(PhiloxKey key, View rows, double keep, View y) override {
    run([&](Stage& s) { on().bernoulli(key, s(rows), keep, s(y)); });
  }
  void rounded_gaussian(const RoundedGaussian& gaussian, const ChaChaStream& stream,
                        std::span<const std::int64_t> counts, View y) override {
    run([&](Stage& s) { on().rounded_gaussian(gaussian, stream, counts, s(y)); });
  }
  void update(std::span<const UpdateArray> arrays, View faults) override;

 private:
  Backend& on() const { return backend(device_); }
  static FusedAttention staged(const FusedAttention& x, Stage& s) {
    const View bias = x.bias.data ? s(x.bias) : View{};
    return {s(x.q), s(x.k), s(x.v), s(x.y), s(x.stats), bias, x.scale, x.causal};
  }
  static ClassTargets staged(const ClassTargets& x, Stage& s) {
    return {s(x.ids), s(x.weights), x.smoothing, x.ignored, x.z_loss};
  }
  static Normalization staged(const Normalization& x, Stage& s) {
    return {x.rule, s(x.weight), s(x.bias)};
  }
  static LstmLayer staged(const LstmLayer& x, Stage& s) {
    return {s(x.gates), s(x.states), s(x.cells), s(x.tanh_cell), s(x.weight), s(x.bias), x.reverse};
  }
  static std::vector<View> staged(std::span<const View> arrays, Stage& s) {
    std::vector<View> there;
    for (const View& array : arrays) there.push_back(s(array));
    return there;
  }
  template <class F>
  void run(F&& call) {
    Stage stage(device_);
    call(stage);
  }

  Device device_;
};

}  // namespace sotto
