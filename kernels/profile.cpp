#include "kernels/profile.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>

#include <fmt/format.h>

#include "core/error.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/functors/functors.h"
#include "kernels/host_device/attention_args.h"
#include "kernels/host_device/class_targets.h"
#include "kernels/host_device/lstm_layer.h"
#include "kernels/host_device/norm_formulas.h"
#include "kernels/host_device/optimizer_update.h"
#include "kernels/host_device/term_bounds.h"

namespace sotto {
namespace {

double count(View x) { return static_cast<double>(x.numel()); }

// The bytes that a view covers: an axis of stride 0 counts once.
double bytes_of(View x) {
  double elements = x.data ? 1 : 0;
  for (int axis = 0; axis < x.rank; ++axis)
    elements *= x.stride[axis] != 0 ? static_cast<double>(x.size[axis]) : 1;
  return elements * static_cast<double>(size_of(x.dtype));
}

std::string text_of(View x) {
  std::string text = x.rank == 0 ? "scalar" : "";
  for (int axis = 0; axis < x.rank; ++axis)
    text += fmt::format("{}{}", axis > 0 ? "x" : "", x.size[axis]);
  return x.dtype == Dtype::f32 ? text : fmt::format("{}:{}", text, name(x.dtype));
}

template <class List>
std::string functor_name(int op) {
  std::string name;
  List::at(op, [&](auto type) { name = decltype(type)::type::name; });
  return name;
}

double gemm_flops(View a, View c) { return 2 * count(c) * static_cast<double>(a.size[a.rank - 1]); }

// The operations of the products, which dominate.
double lstm_flops(const LstmLayer& layer) {
  return 2 * count(layer.gates) * static_cast<double>(layer.weight.size[1]);
}

// The operations of the scores and of the weighted values.
double attention_flops(const FusedAttention& a) {
  return 2 * (count(a.q) + count(a.y)) * static_cast<double>(a.keys());
}

// The operations of each of a convolution's three passes.
double conv_flops(View dy, View x, const Window& window) {
  const double per_output = static_cast<double>(x.size[1] / window.groups * window.positions());
  return 2 * count(dy) * per_output;
}

// Operations of the Gram products of all pixels and of all positions, and of the sum over taps of
// half the pairs.
double pixel_gram_flops(View dy, View x, const Window& window) {
  const Geometry g(x, dy, window);
  const double pixels = static_cast<double>(g.pixels() * g.pixels() * g.group_channels());
  const double pairs = static_cast<double>(g.positions() * g.positions());
  const double taps = static_cast<double>(window.positions()) / 2;
  return static_cast<double>(g.samples * window.groups) *
         (2 * pixels + pairs * (2 * static_cast<double>(g.group_outputs()) + taps));
}

// Operations of the two Gram products over positions s and t, of which norms need half.
double gram_flops(View a1, View b1, View a2) {
  const double pairs =
      count(a1) / static_cast<double>(a1.size[2]) * static_cast<double>(a2.size[1]);
  const double half = a1.data == a2.data ? 0.5 : 1;
  return 2 * half * pairs * static_cast<double>(a1.size[2] + b1.size[2]);
}

}  // namespace

// Forwards every call and records its time, operations and bytes.
class ProfiledBackend : public Backend {
 public:
  explicit ProfiledBackend(Backend& inner) : inner_(inner) {}
  std::string name() const override { return inner_.name(); }
  CostModel costs(Dtype factors) const override { return inner_.costs(factors); }
  std::int64_t chain_of_products(Dtype x) const override { return inner_.chain_of_products(x); }

  void fill(double value, View y) override {
    measure("fill", 0, {y}, [&] { inner_.fill(value, y); });
  }
  void copy(View x, View y) override {
    measure("copy", 0, {x, y}, [&] { inner_.copy(x, y); });
  }
  void gather(View x, View ids, int axis, View y) override {
    measure("gather", 0, {y, ids, y}, [&] { inner_.gather(x, ids, axis, y); });
  }
  void scatter_add(View x, View ids, int axis, View y) override {
    measure("scatter_add", count(x), {x, ids, x}, [&] { inner_.scatter_add(x, ids, axis, y); });
  }
  void take_along(View x, View ids, int axis, View y) override {
    measure("take_along", 0, {y, ids, y}, [&] { inner_.take_along(x, ids, axis, y); });
  }
  void put_along_add(View x, View ids, int axis, View y) override {
    measure("put_along_add", count(x), {x, ids, x}, [&] { inner_.put_along_add(x, ids, axis, y); });
  }
  void unary(int op, Constants c, View x, View y) override {
    measure("unary " + functor_name<UnaryFunctors>(op), count(x), {x, y},
            [&] { inner_.unary(op, c, x, y); });
  }
  void unary_grad(int op, Constants c, View x, View y, View dy, View dx) override {
    measure("unary_grad " + functor_name<UnaryFunctors>(op), count(x), {x, dy, dx},
            [&] { inner_.unary_grad(op, c, x, y, dy, dx); });
  }
  void binary(int op, View a, View b, View y) override {
    measure("binary " + functor_name<BinaryFunctors>(op), count(y), {a, b, y},
            [&] { inner_.binary(op, a, b, y); });
  }
  void binary_grad(int op, int which, View a, View b, View dy, View d) override {
    measure("binary_grad " + functor_name<BinaryFunctors>(op), count(d), {a, b, dy, d},
            [&] { inner_.binary_grad(op, which, a, b, dy, d); });
  }
  void where(View condition, View a, View b, View y) override {
    measure("where", count(y), {condition, a, b, y}, [&] { inner_.where(condition, a, b, y); });
  }
  void axpby(double alpha, View x, double beta, View y) override {
    measure("axpby", 2 * count(x), {x, y}, [&] { inner_.axpby(alpha, x, beta, y); });
  }
  void reduce(Reduction op, View x, View y) override {
    measure("reduce", count(x), {x, y}, [&] { inner_.reduce(op, x, y); });
  }
  void argmax(View x, View y) override {
    measure("argmax", count(x), {x, y}, [&] { inner_.argmax(x, y); });
  }
  void softmax(View x, bool logarithm, View y) override {
    measure("softmax", count(x), {x, y}, [&] { inner_.softmax(x, logarithm, y); });
  }
  void softmax_grad(View y, View dy, bool logarithm, View dx) override {
    measure("softmax_grad", count(y), {y, dy, dx},
            [&] { inner_.softmax_grad(y, dy, logarithm, dx); });
  }
  void cross_entropy(const ClassTargets& targets, View x, View y, View stats) override {
    measure("cross_entropy", count(x), {x, targets.ids, y, stats},
            [&] { inner_.cross_entropy(targets, x, y, stats); });
  }
  void cross_entropy_grad(const ClassTargets& targets, View x, View stats, View dy,
                          View dx) override {
    measure("cross_entropy_grad", count(x), {x, targets.ids, stats, dy, dx},
            [&] { inner_.cross_entropy_grad(targets, x, stats, dy, dx); });
  }
  void masked_softmax(const AttentionMask& rule, View x, View y) override {
    std::vector<View> operands{x, y};
    operands.insert(operands.end(), rule.masks.begin(), rule.masks.end());
    measure("score_weights", count(x), operands, [&] { inner_.masked_softmax(rule, x, y); });
  }
  void score_weights_grad(const AttentionMask& rule, View w, View dw, View dx) override {
    measure("score_weights_grad", count(w), {w, dw, dx},
            [&] { inner_.score_weights_grad(rule, w, dw, dx); });
  }
  bool attention(const FusedAttention& a) override {
    return tried("attention", attention_flops(a), {a.q, a.k, a.v, a.y},
                 [&] { return inner_.attention(a); });
  }
  // Backward computes five products where forward computes two.
  bool attention_grad(const FusedAttention& a, const FusedAttentionGrad& grad) override {
    return tried("attention_grad", 2.5 * attention_flops(a),
                 {a.q, a.k, a.v, a.y, grad.dy, grad.dq, grad.dk, grad.dv},
                 [&] { return inner_.attention_grad(a, grad); });
  }
  void normalize(const Normalization& how, View x, View stats, View y) override {
    measure("normalize", count(x), {x, stats, y}, [&] { inner_.normalize(how, x, stats, y); });
  }
  void normalize_grad(const Normalization& how, View x, View stats, View dy,
                      const NormalizationGrads& grads) override {
    measure("normalize_grad", count(dy), {x, stats, dy, grads.dx, grads.dweight, grads.dbias},
            [&] { inner_.normalize_grad(how, x, stats, dy, grads); });
  }
  void gemm(View a, View b, double beta, View c) override {
    measure("gemm", gemm_flops(a, c), {a, b, c}, [&] { inner_.gemm(a, b, beta, c); });
  }
  void affine(View a, View b, View bias, View c) override {
    measure("affine", gemm_flops(a, c), {a, b, bias, c}, [&] { inner_.affine(a, b, bias, c); });
  }
  void lstm(const LstmLayer& layer) override {
    measure("lstm", lstm_flops(layer), {layer.gates, layer.states, layer.cells, layer.tanh_cell},
            [&] { inner_.lstm(layer); });
  }
  void lstm_grad(const LstmLayer& layer, View dy, View dz, View dstate, View dcell,
                 View squares) override {
    measure("lstm_grad", lstm_flops(layer), {layer.gates, layer.cells, layer.tanh_cell, dy, dz},
            [&] { inner_.lstm_grad(layer, dy, dz, dstate, dcell, squares); });
  }
  void row_dot(View a, View b, View y) override {
    measure("row_dot", 2 * count(a), {a, b, y}, [&] { inner_.row_dot(a, b, y); });
  }
  void gram_dot(View a1, View b1, View a2, View b2, View y) override {
    measure("gram_dot", gram_flops(a1, b1, a2), {a1, b1, a2, b2},
            [&] { inner_.gram_dot(a1, b1, a2, b2, y); });
  }
  void onehot_dot(View ids1, View b1, View ids2, View b2, View y) override {
    measure("onehot_dot", count(b1), {ids1, b1, ids2, b2},
            [&] { inner_.onehot_dot(ids1, b1, ids2, b2, y); });
  }
  void weighted_sum(View x, View w, double beta, View y) override {
    measure("weighted_sum", 2 * count(x), {x, w, y}, [&] { inner_.weighted_sum(x, w, beta, y); });
  }
  void add_rounded(View x, View w, double spacing, View y) override {
    measure("add_rounded", 2 * count(x), {x, w, y}, [&] { inner_.add_rounded(x, w, spacing, y); });
  }
  bool add_rounded_products(View b, View a, View w, double spacing, View y) override {
    return tried("add_rounded_products", 2 * count(b) * static_cast<double>(a.size[2]),
                 {b, a, w, y}, [&] { return inner_.add_rounded_products(b, a, w, spacing, y); });
  }
  void scale_to_bf16x2(View x, View w, View pieces) override {
    measure("weighted_pieces", count(pieces), {x, w, pieces},
            [&] { inner_.scale_to_bf16x2(x, w, pieces); });
  }
  void clip_factors(const ClipRule& rule, double margin, View terms, View settings,
                    View y) override {
    measure("clip_factors", count(terms), {terms, settings, y},
            [&] { inner_.clip_factors(rule, margin, terms, settings, y); });
  }
  void term_bounds(std::span<const BoundedTerms> parameters) override {
    std::vector<View> operands;
    double terms = 0;
    for (const BoundedTerms& one : parameters) {
      operands.insert(operands.end(), {one.a, one.b, one.error_bounds, one.term_norms, one.lost});
      terms += count(one.b);
    }
    measure("term_bounds", terms, operands, [&] { inner_.term_bounds(parameters); });
  }
  void mark_cancelled(const CancelledSquares& squares, View marks) override {
    measure("mark_cancelled", count(marks), {squares.squares, squares.a, squares.b, marks},
            [&] { inner_.mark_cancelled(squares, marks); });
  }
  void mark_nonfinite(std::span<const View> arrays, View y) override {
    std::vector<View> operands(arrays.begin(), arrays.end());
    operands.push_back(y);
    measure("mark_nonfinite", 0, operands, [&] { inner_.mark_nonfinite(arrays, y); });
  }
  void zero_all(std::span<const View> arrays) override {
    measure("zero_all", 0, {arrays.begin(), arrays.end()}, [&] { inner_.zero_all(arrays); });
  }
  void conv(View x, View w, View bias, const Window& window, View y) override {
    measure("conv", conv_flops(y, x, window), {x, w, y},
            [&] { inner_.conv(x, w, bias, window, y); });
  }
  void conv_data(View dy, View w, const Window& window, View dx) override {
    measure("conv_data", conv_flops(dy, dx, window), {dy, w, dx},
            [&] { inner_.conv_data(dy, w, window, dx); });
  }
  void conv_weight(View dy, View x, const Window& window, double beta, View dw) override {
    measure("conv_weight", conv_flops(dy, x, window), {dy, x, dw},
            [&] { inner_.conv_weight(dy, x, window, beta, dw); });
  }
  bool add_rounded_weights(View dy, View x, const Window& window, View w, double spacing,
                           View dw) override {
    return tried("add_rounded_weights", conv_flops(dy, x, window), {dy, x, w, dw},
                 [&] { return inner_.add_rounded_weights(dy, x, window, w, spacing, dw); });
  }
  bool conv_weight_rounded(View dy, View x, const Window& window,
                           std::span<const std::int64_t> ends, double spacing, View dw) override {
    return tried("conv_weight_rounded", conv_flops(dy, x, window), {dy, x, dw},
                 [&] { return inner_.conv_weight_rounded(dy, x, window, ends, spacing, dw); });
  }
  void conv_weight_rows(View dy, View x, const Window& window, View dw, View norms) override {
    measure("conv_weight_rows", conv_flops(dy, x, window), {dy, x, dw},
            [&] { inner_.conv_weight_rows(dy, x, window, dw, norms); });
  }
  void conv_weight_norms(View dy, View x, const Window& window, View y) override {
    measure("conv_weight_norms", conv_flops(dy, x, window), {dy, x, y},
            [&] { inner_.conv_weight_norms(dy, x, window, y); });
  }
  bool conv_gram_norms(View dy, View x, const Window& window, View y) override {
    return tried("conv_gram_norms", pixel_gram_flops(dy, x, window), {dy, x, y},
                 [&] { return inner_.conv_gram_norms(dy, x, window, y); });
  }
  void unfold(View x, const Window& window, View patches) override {
    measure("unfold", 0, {x, patches}, [&] { inner_.unfold(x, window, patches); });
  }
  void max_pool(View x, const Window& window, View y, View chosen) override {
    measure("max_pool", count(y) * static_cast<double>(window.positions()), {x, y, chosen},
            [&] { inner_.max_pool(x, window, y, chosen); });
  }
  void max_pool_grad(View dy, View chosen, const Window& window, View dx) override {
    measure("max_pool_grad", count(dy), {dy, chosen, dx},
            [&] { inner_.max_pool_grad(dy, chosen, window, dx); });
  }
  void avg_pool(View x, const Window& window, bool count_padding, View y) override {
    measure("avg_pool", count(y) * static_cast<double>(window.positions()), {x, y},
            [&] { inner_.avg_pool(x, window, count_padding, y); });
  }
  void avg_pool_grad(View dy, const Window& window, bool count_padding, View dx) override {
    measure("avg_pool_grad", count(dy) * static_cast<double>(window.positions()), {dy, dx},
            [&] { inner_.avg_pool_grad(dy, window, count_padding, dx); });
  }
  void bernoulli(PhiloxKey key, View rows, double keep, View y) override {
    measure("bernoulli", count(y), {rows, y}, [&] { inner_.bernoulli(key, rows, keep, y); });
  }
  void rounded_gaussian(const RoundedGaussian& gaussian, const ChaChaStream& stream,
                        std::span<const std::int64_t> counts, View y) override {
    measure("rounded_gaussian", count(y), {y},
            [&] { inner_.rounded_gaussian(gaussian, stream, counts, y); });
  }
  void update(std::span<const UpdateArray> arrays, View faults) override {
    double elements = 0;
    std::vector<View> operands;
    for (const UpdateArray& array : arrays) {
      elements += static_cast<double>(array.count);
      const View all{
          array.gradient, array.dtype, 1, {array.count * (2 + count_states(array))}, {1}};
      operands.push_back(all);
    }
    measure("update", elements, operands, [&] { inner_.update(arrays, faults); });
  }

  std::map<std::string, KernelTotal> totals;

 protected:
  template <class Call>
  bool tried(const std::string& name, double flops, const std::vector<View>& all, Call&& call) {
    bool done = false;
    measure(name, flops, all, [&] { done = call(); });
    return done;
  }
  template <class Call>
  void measure(const std::string& name, double flops, const std::vector<View>& all, Call&& call) {
    const auto start = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    std::string shapes;
    double bytes = 0;
    for (const View& operand : all) {
      shapes += (shapes.empty() ? "" : " ") + text_of(operand);
      bytes += bytes_of(operand);
    }
    KernelTotal& total = totals[name + " " + shapes];
    total.name = name;
    total.shapes = shapes;
    ++total.calls;
    total.seconds += passed.count();
    total.flops += flops;
    total.bytes += bytes;
  }

  Backend& inner_;
};

namespace {

std::unique_ptr<ProfiledBackend>& running() {
  static std::unique_ptr<ProfiledBackend> profiled;
  return profiled;
}

std::vector<KernelTotal> slowest_first(const std::map<std::string, KernelTotal>& totals) {
  std::vector<KernelTotal> sorted;
  for (const auto& [key, total] : totals) sorted.push_back(total);
  std::stable_sort(sorted.begin(), sorted.end(), [](const KernelTotal& a, const KernelTotal& b) {
    return a.seconds > b.seconds;
  });
  return sorted;
}

}  // namespace

KernelProfile::KernelProfile() {
  check(!running(), "KernelProfile: another profile is running");
  running() = std::make_unique<ProfiledBackend>(backend(cpu));
  observe_cpu_backend(running().get());
}

KernelProfile::~KernelProfile() {
  observe_cpu_backend(nullptr);
  running().reset();
}

std::vector<KernelTotal> KernelProfile::totals() const { return slowest_first(running()->totals); }

std::vector<KernelTotal> KernelProfile::totals_by_name() const {
  std::map<std::string, KernelTotal> together;
  for (const auto& [key, total] : running()->totals) {
    KernelTotal& sum = together[total.name];
    sum.name = total.name;
    sum.calls += total.calls;
    sum.seconds += total.seconds;
    sum.flops += total.flops;
    sum.bytes += total.bytes;
  }
  return slowest_first(together);
}

void KernelProfile::reset() { running()->totals.clear(); }

}  // namespace sotto
