// The gradient of a shared value, one summand for each sample, kept in the form it arose in.
//
// For every op the gradient of a parameter is a sum over samples, and each summand G[n] has
// structure: an outer product summed over positions, a weight gradient of one image, a few rows of
// a table. PerSampleGrad keeps that structure; the ordinary gradient is sum(), norms are dot(f, f),
// and a clipped gradient is sum(weights). docs/explanation/per-sample-gradients.md derives the
// forms and costs.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <variant>

#include "autograd/per_sample/rounded_sum.h"
#include "core/tensor.h"
#include "kernels/host_device/geometry.h"

namespace sotto {

// How dot() computes: through Gram products of the factors, through rows, or whichever a model of
// operations and bytes says is cheaper.
enum class NormMethod { automatic, ghost, materialize };

// Rows that belong together: what is clipped is the unit (a user, a sample's augmentations), whose
// gradient is the sum or the mean of its rows'.
struct Grouping {
  std::vector<std::int64_t> unit_of_row = {};  // -1: the row takes part in nothing
  std::int64_t units = 0;
  bool mean = false;
  // Whether row k is unit k as long as there are units, and the other rows take part in nothing.
  bool first_rows() const;
};

// What is known of the norm of a parameter's gradient, for each sample: [n] f64, where its factors
// are.
struct NormEstimate {
  Tensor squares;       // squared norms
  Tensor error_bounds;  // what rounding may add to norms (squared_norm); undefined: nothing
  Tensor term_norms;    // of the length of their terms (squared_norm); undefined: 0
  // Not 0 where a squared norm has to be taken again, in double; undefined: nowhere.
  Tensor needs_f64;
};

// The errors and shares among them, as numbers: 0 where there is nothing.
struct NormErrorBounds {
  std::vector<double> error_bounds, term_norms;
};

// Factors in f16 or bf16 stand for exactly the numbers they hold: sums and rows of them are f32,
// computed from f32 copies of a few samples' factors at a time, or on a GPU from themselves, where
// they are not scaled, and from pieces that make up the scaled factor.
class PerSampleGrad {
 public:
  PerSampleGrad(const PerSampleGrad&);
  PerSampleGrad(PerSampleGrad&&) noexcept;
  PerSampleGrad& operator=(const PerSampleGrad&);
  PerSampleGrad& operator=(PerSampleGrad&&) noexcept;
  ~PerSampleGrad();

  // G[n] = sum_t b[n,t] (x) a[n,t], with b [n, t, o] and a [n, t, i]; `shape` holds o * i elements.
  // `squares` [n, t] f64 is |b[n,t]|^2, where that is known.
  static PerSampleGrad outer(const Tensor& b, const Tensor& a, const Shape& shape,
                             const Tensor& squares = {});
  // The same with a = patches of x [n, c, d, h, w], and b = dy [n, o, d', h', w']; `shape` is that
  // of the weight, [o, c / groups, kd, kh, kw] up to axes of size 1.
  static PerSampleGrad patches(const Tensor& dy, const Tensor& x, const Window& window,
                               const Shape& shape);
  // G[n] = sum_t e(ids[n,t]) (x) b[n,t], with ids [n, t] i64 and b [n, t, d], or [n, 1, d] where
  // all positions have the same; a negative id adds nothing, and without `gaps` there is none;
  // `shape` is [rows, d].
  static PerSampleGrad onehot(const Tensor& ids, const Tensor& b, const Shape& shape,
                              bool gaps = true);
  // G itself, [n, ...shape].
  static PerSampleGrad materialized(const Tensor& rows);
  // The first samples of factors in memory of captured work's own, which each replay writes anew:
  // slice(0, rows) of `whole`, which captured() knows.
  static PerSampleGrad captured_prefix(std::shared_ptr<const PerSampleGrad> whole,
                                       std::int64_t rows);

  std::int64_t samples() const;
  Device device() const { return leading().device(); }
  // What captured_prefix() was given; null for everything else, also for what was made of its
  // result.
  const std::shared_ptr<const PerSampleGrad>& captured() const { return captured_; }
  // The shape of the parameter.
  const Shape& shape() const { return shape_; }
  // Of sums and rows: f32, or f64 where the factors are.
  Dtype dtype() const;
  // "outer", "patches", "onehot" or "dense".
  const char* form() const;
  // Its tensors are kept for their own sake from here on: what was workspace counts as factors, or
  // as rows. What has another use, as activations, counts as that.
  void count_as_kept() const;

  // [n, ...shape]
  Tensor materialize() const;
  // sum_n G[n], of the parameter's shape.
  Tensor sum() const;
  // sum_n w[n] G[n] over the samples with w[n] != 0; w [n], f32 or f64. Weights select: a sample of
  // weight 0 adds exactly nothing, whatever its gradient holds; of weights on a GPU, which the host
  // does not read, nothing or, where a factor is not finite, perhaps NaN to the whole sum.
  Tensor sum(const Tensor& weights) const;
  // [n] f64: <f[n], g[n]>. Throws when samples or shapes differ.
  // The same, added to a sum with each of its terms rounded to a multiple of the sum's spacing:
  // rows of a dense form and of tables, of other forms blocks of samples, or single ones. `uses` is
  // how many times the parameter is used.
  void add_to(const RoundedSum& sum, const Tensor& weights, const BlockEnds& ends,
              std::int64_t uses = 1) const;
  friend Tensor dot(const PerSampleGrad& f, const PerSampleGrad& g, NormMethod norm_method);

  // Samples begin .. end - 1.
  PerSampleGrad slice(std::int64_t begin, std::int64_t end) const;
  // The sum with another one, where both are rows.
  PerSampleGrad with_rows(const PerSampleGrad& other) const;
  // One summand for each unit instead of each row.
  PerSampleGrad group(const Grouping& grouping) const;
  // The same numbers for a parameter of another shape with as many elements, in row-major order.
  PerSampleGrad reshaped(const Shape& shape) const;
  // Each G[n] with its axes in another order: y axis k is axis axes[k]. The factors of a matrix's
  // gradient change places.
  PerSampleGrad permuted(const Shape& axes) const;
  // Rows, if they are the cheaper way to a norm and a weighted sum and take at most `budget` bytes,
  // and unless asked for no more than factors in 16 bits; otherwise itself.
  PerSampleGrad materialize_if_cheaper(NormMethod norm_method, std::size_t budget) const;
  std::size_t materialized_bytes() const;  // of materialize()
  std::size_t bytes() const;               // of what it holds
  // Rows where these take fewer bytes than the factors, otherwise itself.
  PerSampleGrad smallest_form() const;
  // What the model of costs expects, in seconds for one sample: of a norm by rows that are only
  // passed through, of one by Gram products, of a norm and a weighted sum by rows that are kept,
  // and of a weighted sum by one product over the batch.
  struct Times {
    double rows_norm, gram_norm, kept_rows, sum;
  };
  Times times() const;
  // The squared norm of the whole gradient of a parameter, [n] f64: all its uses, with their cross
  // terms; exact to rounding where they cancel each other, too. The errors become, for each sample,
  // how far in the L2 norm rounding may take its part of the sum of all uses' sums from its
  // gradient: 2^-23 sqrt(T) sum_t |b[t]| |a[t]| in single precision, added over uses, for T
  // positions, and what underflow may take from inner products (docs/appendix/proofs-rounding.md).
  // Far below the norm unless terms cancel. Rows have those of the factors they were made of; a
  // single use whose rows arose as such has 0. Shares become sum_t |b[t]| |a[t]| / max(min(64, 8
  // sqrt(T)), 4 sqrt(T)), added over uses: where that is longer than the bound, the terms are so
  // long in a sum that others' parts would be rounded away beside them.
  friend Tensor squared_norm(const std::vector<PerSampleGrad>& uses, NormMethod norm_method,
                             NormErrorBounds* more);
  // The same without reading anything on the host: what squared_norm() would compute again, in
  // double, is in doubt.
  friend NormEstimate norm_terms(const std::vector<PerSampleGrad>& uses, NormMethod norm_method);
  friend Tensor sample_gradient_f64(const std::vector<PerSampleGrad>& uses, std::int64_t sample,
                                    double weight);

 private:
  struct Outer {
    Tensor b, a;
    Tensor squares = {};  // |b[n,t]|^2, or undefined
  };
  struct Patches {
    Tensor dy, x;
    Window window;
  };
  struct OneHot {
    Tensor ids, b;  // b [n, t, d], or [n, 1, d]
    bool gaps;      // whether an id may be negative
    void add_to(const Tensor& y) const;
  };
  struct Dense {
    Tensor rows;
  };

  PerSampleGrad(std::variant<Outer, Patches, OneHot, Dense> form, Shape shape)
      : form_(std::move(form)), shape_(std::move(shape)) {}
  static Tensor flat(const Tensor& x);
  static Shape weight_shape(const Tensor& dy, const Tensor& x, const Window& window);
  const Tensor& leading() const;
  PerSampleGrad selected(const Tensor& ids) const;
  PerSampleGrad scaled(const Tensor& weights) const;
  PerSampleGrad masked(const Tensor& weights) const;
  PerSampleGrad in_type(Dtype dtype) const;
  PerSampleGrad wide() const { return in_type(Dtype::f64); }
  bool narrow() const { return factor_type() != dtype(); }
  bool multiplied_as_it_is() const;
  bool scaled_in_pieces() const;
  Tensor sum_in_pieces(const Tensor& weights) const;
  std::int64_t max_together(std::int64_t uses) const;
  void add_images(const RoundedSum& sum, std::span<const std::int64_t> ends) const;
  void add_each(const RoundedSum& sum, const Tensor& weights) const;
  void add_table(const RoundedSum& sum, const Tensor& weights) const;
  using OnWeighted =
      std::function<void(const PerSampleGrad& part, std::span<const std::int64_t> ends)>;
  void for_each_weighted(const Tensor& weights, const std::vector<std::int64_t>& ends,
                         const OnWeighted& f) const;
  std::int64_t factor_values() const;
  std::optional<Dtype> factor_type() const;
  using OnPart =
      std::function<void(const PerSampleGrad& part, std::int64_t begin, std::int64_t end)>;
  void for_each_part(const OnPart& f) const;
  static Tensor squared_norms(const Tensor& x);
  Tensor bounds() const;
  // sum_t |b[t]| |a[t]| at most and sqrt(T), each [n], and min_cancelled where the former is
  // known well; of an outer form the squared norms of a and b, too.
  struct Terms {
    Tensor lengths, roots;
    double min;
    Tensor of_a = {}, of_b = {};
  };
  Terms terms_of_samples() const;
  NormEstimate of_terms() const;
  NormEstimate of_images(const Tensor& dy, const Tensor& x) const;
  Tensor image_rows(Tensor* norms) const;
  NormEstimate rounding(bool alone) const;
  double positions() const;
  bool by_tiles() const;
  double last_place() const;
  static Tensor root(const Tensor& x);
  void add_underflow(Tensor& error_bounds, const Tensor& a, const Tensor& b) const;
  static void add_rounding(const std::vector<PerSampleGrad>& uses, NormEstimate& y);
  static bool by_gram(const PerSampleGrad& f, const PerSampleGrad& g, NormMethod norm_method);
  // Where `needs_f64` is given samples are marked there that would be computed again.
  static Tensor product(const PerSampleGrad& f, const PerSampleGrad& g, NormMethod norm_method,
                        const Tensor& needs_f64);
  static Tensor row_norms(const PerSampleGrad& f, const Tensor& needs_f64,
                          NormEstimate* more = nullptr);
  static void recompute_in_f64(const PerSampleGrad& f, const PerSampleGrad& g, const Tensor& marks,
                               const Tensor& y, const Tensor& needs_f64);
  static std::vector<double> gradient_again(const std::vector<PerSampleGrad>& uses,
                                            std::int64_t sample);
  static Tensor norm_of_uses(const std::vector<PerSampleGrad>& uses, NormMethod norm_method,
                             const Tensor& needs_f64);
  static NormEstimate terms(const std::vector<PerSampleGrad>& uses, NormMethod norm_method,
                            bool wait);
  static Tensor gram(const PerSampleGrad& f, const PerSampleGrad& g);
  static Tensor gram_of_parts(const PerSampleGrad& f, const PerSampleGrad& g);
  static Tensor by_rows(const PerSampleGrad& f, const PerSampleGrad& g,
                        const Tensor& needs_f64 = {});
  static PerSampleGrad factors(const PerSampleGrad& f, std::int64_t group);

  std::variant<Outer, Patches, OneHot, Dense> form_;
  Shape shape_;
  std::shared_ptr<const PerSampleGrad> captured_;
  // Errors and shares, where these are of what it was made of: choices for a batch must not show in
  // them; and of rows the squared norms, where they came with them. Other selections than slice(),
  // whose norms nobody asks for, leave them behind.
  NormEstimate known_;
};

Tensor dot(const PerSampleGrad& f, const PerSampleGrad& g,
           NormMethod norm_method = NormMethod::automatic);

Tensor squared_norm(const std::vector<PerSampleGrad>& uses,
                    NormMethod norm_method = NormMethod::automatic,
                    NormErrorBounds* more = nullptr);

NormEstimate norm_terms(const std::vector<PerSampleGrad>& uses,
                        NormMethod norm_method = NormMethod::automatic);

// Adds a tensor of the sum's shape as one term.
void add_term(const Tensor& term, const RoundedSum& sum);

// `weight` times the gradient of one sample, by all uses, added up in double and rounded once to
// the type of sums.
Tensor sample_gradient_f64(const std::vector<PerSampleGrad>& uses, std::int64_t sample,
                           double weight);

}  // namespace sotto
