// The forms in which per-sample gradients arise. For the sources of this folder: other code uses
// PerSampleGrad (per_sample_grad.h), which holds one of them.
//
// Each form is a struct with the members that Outer has, and Form calls those of the form it holds.
// A new form is one more struct here, plus its cost in cost_model.cpp and its rounding in
// rounding_bounds.cpp.
#pragma once

#include <array>
#include <concepts>
#include <functional>
#include <optional>
#include <variant>

#include "core/tensor.h"
#include "kernels/host_device/geometry.h"

namespace sotto::detail {

// G[n] = sum_t b[n,t] (x) a[n,t], with b [n, t, o] and a [n, t, i].
struct Outer {
  // The name of the form.
  static constexpr const char* name = "outer";
  // The label of its bytes while it waits for norms.
  static constexpr MemoryKind kept_as = MemoryKind::saved_factor;
  Tensor b, a;          // gradients of outputs, and inputs
  Tensor squares = {};  // |b[n,t]|^2 [n, t] f64; undefined: not known

  // The tensors whose products are the gradients; weights scale the first one.
  std::array<const Tensor*, 2> factors() const { return {&b, &a}; }
  // The bytes of its tensors.
  std::size_t bytes() const { return b.bytes() + a.bytes(); }
  // Number of products of factors that each element of a sample's gradient sums (T).
  double positions() const { return static_cast<double>(b.size(1)); }
  // Return G as [n, ...shape] and sum_n G[n] as `shape`, that of the parameter; add_sum adds the
  // sum to y, which has the parameter's shape.
  Tensor materialize(const Shape& shape) const;
  // sum_n G[n].
  Tensor sum(const Shape& shape) const;
  // Adds the sum to y.
  void add_sum(const Tensor& y) const;
  // Samples begin .. end - 1.
  Outer slice(std::int64_t begin, std::int64_t end) const;
  // The samples with these ids [m], in this order; an id of -1 gives zeros.
  Outer select(const Tensor& ids) const;
  // w[n] G[n]; the scaled factor has the type of sums (f32 for 16-bit factors).
  Outer scale(const Tensor& weights) const;
  // Writes zeros into the first factor of samples with weight 0. Such a sample then adds exactly
  // nothing if its other factor is finite; if that is not finite, neither is the sum.
  Outer mask(const Tensor& weights) const;
  // The same with factors of this type.
  Outer in_type(Dtype dtype) const;
};

// The weight gradient of a convolution: the outer form with a = the patches of the images
// x [n, c, d, h, w] that the window visits, and b = dy [n, o, d', h', w'].
struct Patches {
  // The name of the form.
  static constexpr const char* name = "patches";
  // The label of its bytes while it waits for norms.
  static constexpr MemoryKind kept_as = MemoryKind::saved_factor;
  Tensor dy, x;   // gradients of outputs, and images
  Window window;  // of the convolution

  // The factors; weights scale the first one.
  std::array<const Tensor*, 2> factors() const { return {&dy, &x}; }
  // The bytes of its tensors.
  std::size_t bytes() const { return dy.bytes() + x.bytes(); }
  // The number of products that an element of G sums.
  double positions() const { return static_cast<double>(dy.size(2) * dy.size(3) * dy.size(4)); }
  // G, [n, ...shape].
  Tensor materialize(const Shape& shape) const { return materialize(shape, nullptr); }
  // Also sets *norms, unless nullptr, to the squared norms that conv_weight_norms() returns.
  Tensor materialize(const Shape& shape, Tensor* norms) const;
  // sum_n G[n].
  Tensor sum(const Shape& shape) const;
  // Adds the sum to y.
  void add_sum(const Tensor& y) const;
  // Samples begin .. end - 1.
  Patches slice(std::int64_t begin, std::int64_t end) const;
  // The samples with these ids [m]; an id of -1 gives zeros.
  Patches select(const Tensor& ids) const;
  // w[n] G[n].
  Patches scale(const Tensor& weights) const;
  // Zeros where the weight is 0.
  Patches mask(const Tensor& weights) const;
  // The same with factors of this type.
  Patches in_type(Dtype dtype) const;

  // The shape of the weight, with three spatial axes.
  Shape weight_shape() const;
  // One group of the convolution as an outer form, with its patches written to memory.
  Outer unfolded(std::int64_t group) const;
};

// The gradient of a table (embedding): G[n] = sum_t e(ids[n,t]) (x) b[n,t], with e(i) the i-th unit
// vector, and b [n, t, d], or [n, 1, d] where all positions of a sample share one vector.
struct OneHot {
  // The name of the form.
  static constexpr const char* name = "onehot";
  // The label of its bytes while it waits for norms.
  static constexpr MemoryKind kept_as = MemoryKind::saved_factor;
  Tensor ids, b;  // i64, and vectors
  bool gaps;      // whether an id may be negative, which adds nothing

  // The factor that weights scale.
  std::array<const Tensor*, 1> factors() const { return {&b}; }
  // The bytes of its tensors.
  std::size_t bytes() const { return ids.bytes() + b.bytes(); }
  // The number of products that an element of G sums.
  double positions() const { return static_cast<double>(ids.size(1)); }
  // G, [n, ...shape].
  Tensor materialize(const Shape& shape) const;
  // sum_n G[n].
  Tensor sum(const Shape& shape) const;
  // Adds the sum to y.
  void add_sum(const Tensor& y) const;
  // Samples begin .. end - 1.
  OneHot slice(std::int64_t begin, std::int64_t end) const;
  // The samples with these ids [m]; an id of -1 gives zeros.
  OneHot select(const Tensor& ids) const;
  // w[n] G[n].
  OneHot scale(const Tensor& weights) const;
  // Zeros where the weight is 0.
  OneHot mask(const Tensor& weights) const;
  // The same with factors of this type.
  OneHot in_type(Dtype dtype) const;
};

// The materialized gradients G, [n, ...shape].
struct Dense {
  // The name of the form.
  static constexpr const char* name = "dense";
  // The label of its bytes while it waits for norms.
  static constexpr MemoryKind kept_as = MemoryKind::per_sample_grad;
  Tensor gradients;  // [n, ...shape]

  // The factor that weights scale.
  std::array<const Tensor*, 1> factors() const { return {&gradients}; }
  // The bytes of its tensors.
  std::size_t bytes() const { return gradients.bytes(); }
  // The number of products that an element of G sums.
  double positions() const { return 1; }
  // G, [n, ...shape].
  Tensor materialize(const Shape&) const { return gradients; }
  // sum_n G[n].
  Tensor sum(const Shape& shape) const;
  // Adds the sum to y.
  void add_sum(const Tensor& y) const;
  // Samples begin .. end - 1.
  Dense slice(std::int64_t begin, std::int64_t end) const;
  // The samples with these ids [m]; an id of -1 gives zeros.
  Dense select(const Tensor& ids) const;
  // w[n] G[n].
  Dense scale(const Tensor& weights) const;
  // Zeros where the weight is 0.
  Dense mask(const Tensor& weights) const;
  // The same with factors of this type.
  Dense in_type(Dtype dtype) const;
};

// One of the four forms.
class Form {
 public:
  // The four forms.
  using Any = std::variant<Outer, Patches, OneHot, Dense>;

  // Takes over a form.
  template <std::convertible_to<Any> T>
  Form(T form) : form_(std::move(form)) {}

  // Calls f with the form.
  template <class F>
  decltype(auto) visit(F&& f) const {
    return std::visit(std::forward<F>(f), form_);
  }
  // The form as a T; nullptr if it is another one.
  template <class T>
  const T* as() const {
    return std::get_if<T>(&form_);
  }

  // The name of the form.
  const char* name() const;
  // The factor that weights scale.
  const Tensor& leading() const;
  // n.
  std::int64_t samples() const { return leading().size(0); }
  // The device of the factors.
  Device device() const { return leading().device(); }
  // The type of sums and materialized gradients: f32, or f64 where the factors are.
  Dtype dtype() const;
  // The type of all factors; nullopt where they differ.
  std::optional<Dtype> factor_type() const;
  // True if a factor is f16 or bf16.
  bool has_16bit_factor() const { return factor_type() != dtype(); }
  // True if sums and materialized gradients are computed from the factors as they are; false if
  // from copies in dtype().
  bool multiplies_factors_directly() const;
  // The number of elements of all factors.
  std::int64_t factor_values() const;
  // The bytes of its tensors.
  std::size_t bytes() const;
  // The number of products that an element of G sums.
  double positions() const;
  // Labels the tensors as kept_as.
  void count_as_kept() const;

  // These call the form's member of the same name. materialize() and sum() first convert factors
  // that cannot be multiplied directly, for a few samples at a time; add_sum() does not.
  Tensor materialize(const Shape& shape) const;
  // sum_n G[n].
  Tensor sum(const Shape& shape) const;
  // Adds the sum to y.
  void add_sum(const Tensor& y) const;
  // Samples begin .. end - 1.
  Form slice(std::int64_t begin, std::int64_t end) const;
  // The samples with these ids [m]; an id of -1 gives zeros.
  Form select(const Tensor& ids) const;
  // w[n] G[n].
  Form scale(const Tensor& weights) const;
  // Zeros where the weight is 0.
  Form mask(const Tensor& weights) const;
  // The same with factors of this type.
  Form in_type(Dtype dtype) const;

  // Calls f(chunk, begin, end) for chunks of consecutive samples, with their factors in dtype().
  void for_each_converted(
      const std::function<void(const Form& chunk, std::int64_t begin, std::int64_t end)>& f) const;

 private:
  Any form_;
};

// x [n, t, k] reshaped to [n t, k].
Tensor flat(const Tensor& x);

}  // namespace sotto::detail
