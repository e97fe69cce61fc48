// The forms in which per-sample gradients arise. For the sources of this folder: other code uses
// PerSampleGrad (per_sample_grad.h), which holds one of them.
//
// Each form is a struct with these members, and Form calls those of the form it holds:
//   `name`, `kept_as`       for messages; the label of its bytes while it waits for norms
//   factors(), leading()    the tensors whose products are the gradients; weights scale the first
//   bytes(), positions()    bytes of its tensors; products that each element of G sums (T)
//   materialize(), sum()    G as [n, ...shape]; sum_n G[n] as `shape`, that of the parameter
//   add_sum(y)              adds the sum to y, which has the parameter's shape
//   slice(), select()       samples begin .. end - 1; those with these ids [m], -1 gives zeros
//   scale(), mask()         w[n] G[n], in the type of sums; zeros in the first factor where w is 0
//   in_type()               the form with factors of this type
// A masked sample adds exactly 0 if its other factor is finite; if not, neither is the sum.
//
// A new form is one more struct here, plus its cost in cost_model.cpp and its rounding in
// rounding_bounds.cpp.
#pragma once

#include <array>
#include <concepts>
#include <functional>
#include <optional>
#include <variant>
#include <vector>

#include "autograd/per_sample/per_sample_grad.h"
#include "core/tensor.h"
#include "kernels/host_device/geometry.h"

namespace sotto::detail {

// G[n] = sum_t b[n,t] (x) a[n,t], with b [n, t, o] and a [n, t, i].
struct Outer {
  static constexpr const char* name = "outer";
  static constexpr MemoryKind kept_as = MemoryKind::saved_factor;
  Tensor b, a;          // gradients of outputs, and inputs
  Tensor squares = {};  // |b[n,t]|^2 [n, t] f64; undefined: not known

  std::array<const Tensor*, 2> factors() const { return {&b, &a}; }
  std::size_t bytes() const { return b.bytes() + a.bytes(); }
  double positions() const { return static_cast<double>(b.size(1)); }
  Tensor materialize(const Shape& shape) const;
  Tensor sum(const Shape& shape) const;
  void add_sum(const Tensor& y) const;
  Outer slice(std::int64_t begin, std::int64_t end) const;
  Outer select(const Tensor& ids) const;
  Outer scale(const Tensor& weights) const;
  Outer mask(const Tensor& weights) const;
  Outer in_type(Dtype dtype) const;
};

// The weight gradient of a convolution: the outer form with a = the patches of the images
// x [n, c, d, h, w] that the window visits, and b = dy [n, o, d', h', w'].
struct Patches {
  static constexpr const char* name = "patches";
  static constexpr MemoryKind kept_as = MemoryKind::saved_factor;
  Tensor dy, x;   // gradients of outputs, and images
  Window window;  // of the convolution

  std::array<const Tensor*, 2> factors() const { return {&dy, &x}; }
  std::size_t bytes() const { return dy.bytes() + x.bytes(); }
  double positions() const { return static_cast<double>(dy.size(2) * dy.size(3) * dy.size(4)); }
  Tensor materialize(const Shape& shape) const { return materialize(shape, nullptr); }
  // Also sets *norms, unless nullptr, to the squared norms that conv_weight_norms() returns.
  Tensor materialize(const Shape& shape, Tensor* norms) const;
  Tensor sum(const Shape& shape) const;
  void add_sum(const Tensor& y) const;
  Patches slice(std::int64_t begin, std::int64_t end) const;
  Patches select(const Tensor& ids) const;
  Patches scale(const Tensor& weights) const;
  Patches mask(const Tensor& weights) const;
  Patches in_type(Dtype dtype) const;

  // The shape of the weight, with three spatial axes.
  Shape weight_shape() const;
  // One group of the convolution as an outer form, with its patches written to memory.
  Outer unfolded(std::int64_t group) const;
};

// The gradient of a table (embedding): G[n] = sum_t e(ids[n,t]) (x) b[n,t], with e(i) the i-th unit
// vector, and b [n, t, d], or [n, 1, d] where all positions of a sample share one vector.
struct OneHot {
  static constexpr const char* name = "onehot";
  static constexpr MemoryKind kept_as = MemoryKind::saved_factor;
  Tensor ids, b;  // i64, and vectors
  bool gaps;      // whether an id may be negative, which adds nothing

  std::array<const Tensor*, 1> factors() const { return {&b}; }
  std::size_t bytes() const { return ids.bytes() + b.bytes(); }
  double positions() const { return static_cast<double>(ids.size(1)); }
  Tensor materialize(const Shape& shape) const;
  Tensor sum(const Shape& shape) const;
  void add_sum(const Tensor& y) const;
  OneHot slice(std::int64_t begin, std::int64_t end) const;
  OneHot select(const Tensor& ids) const;
  OneHot scale(const Tensor& weights) const;
  OneHot mask(const Tensor& weights) const;
  OneHot in_type(Dtype dtype) const;
};

// The materialized gradients themselves, G [n, ...shape].
struct Dense {
  static constexpr const char* name = "dense";
  static constexpr MemoryKind kept_as = MemoryKind::per_sample_grad;
  Tensor gradients;  // [n, ...shape]

  std::array<const Tensor*, 1> factors() const { return {&gradients}; }
  std::size_t bytes() const { return gradients.bytes(); }
  double positions() const { return 1; }
  Tensor materialize(const Shape&) const { return gradients; }
  Tensor sum(const Shape& shape) const;
  void add_sum(const Tensor& y) const;
  Dense slice(std::int64_t begin, std::int64_t end) const;
  Dense select(const Tensor& ids) const;
  Dense scale(const Tensor& weights) const;
  Dense mask(const Tensor& weights) const;
  Dense in_type(Dtype dtype) const;
};

// The gradients of a value from which a weight was computed: a linear function, the same for all
// samples, of the weight's gradients. They are computed a few samples at a time whenever they are
// read, to the same bits each time, and count as gradients that arose materialized. On a CPU only.
struct Derived {
  static constexpr const char* name = "derived";
  static constexpr MemoryKind kept_as = MemoryKind::saved_factor;
  std::vector<PerSampleGrad> uses;               // of the weight, added up; at least one
  std::function<Tensor(Tensor rows)> pull_back;  // from gradients [n, ...] to contiguous G
  Shape shape;                                   // of G[n]
  Dtype dtype;                                   // of G

  std::array<const Tensor*, 1> factors() const;
  std::size_t bytes() const;
  double positions() const { return 1; }
  Tensor materialize(const Shape& shape) const;
  Tensor sum(const Shape& shape) const;
  void add_sum(const Tensor& y) const;
  Derived slice(std::int64_t begin, std::int64_t end) const;
  // These write the gradients out.
  Dense select(const Tensor& ids) const;
  Dense scale(const Tensor& weights) const;
  Dense mask(const Tensor& weights) const;
  Dense in_type(Dtype dtype) const;

  // Calls f(rows, begin, end) for chunks of consecutive samples, with their gradients.
  void for_each_chunk(
      const std::function<void(const Tensor& rows, std::int64_t begin, std::int64_t end)>& f) const;
};

// The gradients of all uses of a value, added up: [n, ...shape], and their sum over samples.
Tensor rows_of_uses(const std::vector<PerSampleGrad>& uses);
Tensor sum_of_uses(const std::vector<PerSampleGrad>& uses);
// Calls f(rows, begin, end) for chunks of consecutive samples, with their rows_of_uses().
void for_each_rows(const std::vector<PerSampleGrad>& uses,
                   const std::function<void(Tensor rows, std::int64_t begin, std::int64_t end)>& f);

// One of the five forms above, with its members.
class Form {
 public:
  using Any = std::variant<Outer, Patches, OneHot, Dense, Derived>;

  template <std::convertible_to<Any> T>
  Form(T form) : form_(std::move(form)) {}

  // Returns f(form) for the struct that this holds.
  template <class F>
  decltype(auto) visit(F&& f) const {
    return std::visit(std::forward<F>(f), form_);
  }
  // The form as a T; nullptr if it is another one.
  template <class T>
  const T* as() const {
    return std::get_if<T>(&form_);
  }

  const char* name() const;
  const Tensor& leading() const;
  std::int64_t samples() const { return leading().size(0); }
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
  std::size_t bytes() const;
  double positions() const;
  // Labels the tensors with the form's kept_as.
  void count_as_kept() const;

  // These call the form's member of the same name. materialize() and sum() first convert factors
  // that cannot be multiplied directly, for a few samples at a time; add_sum() does not.
  Tensor materialize(const Shape& shape) const;
  Tensor sum(const Shape& shape) const;
  void add_sum(const Tensor& y) const;
  Form slice(std::int64_t begin, std::int64_t end) const;
  Form select(const Tensor& ids) const;
  Form scale(const Tensor& weights) const;
  Form mask(const Tensor& weights) const;
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
