#include "autograd/per_sample/per_sample_grad.h"

#include "autograd/per_sample/forms.h"
#include "autograd/per_sample/rounding_bounds.h"
#include "autograd/per_sample/weighted_sum.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "kernels/tf32.h"

namespace sotto {

using detail::Dense, detail::Derived, detail::OneHot, detail::Outer, detail::Patches;

namespace {

// Where two factors meet that an operation took from different devices, such as a batch on the host
// for a model on a GPU: a GPU, if one of them is there.
Device common_device(const Tensor& x, const Tensor& y) {
  return x.device() == cpu ? y.device() : x.device();
}

}  // namespace

struct PerSampleGrad::Content {
  detail::Form form;
  Shape shape;  // of the parameter
  NormEstimate inherited = {};
  std::shared_ptr<const PerSampleGrad> captured = {};
};

PerSampleGrad::PerSampleGrad(detail::Form form, const Shape& shape)
    : PerSampleGrad(std::move(form), shape, {}) {}
PerSampleGrad::PerSampleGrad(detail::Form form, const Shape& shape, NormEstimate inherited)
    : content_(new Content{std::move(form), shape, std::move(inherited)}) {}
PerSampleGrad::PerSampleGrad(const PerSampleGrad&) = default;
PerSampleGrad::PerSampleGrad(PerSampleGrad&&) noexcept = default;
PerSampleGrad& PerSampleGrad::operator=(const PerSampleGrad&) = default;
PerSampleGrad& PerSampleGrad::operator=(PerSampleGrad&&) noexcept = default;
PerSampleGrad::~PerSampleGrad() = default;

std::int64_t PerSampleGrad::samples() const { return form_data().samples(); }
Device PerSampleGrad::device() const { return form_data().device(); }
const Shape& PerSampleGrad::shape() const { return content_->shape; }
Dtype PerSampleGrad::dtype() const { return form_data().dtype(); }
const char* PerSampleGrad::form() const { return form_data().name(); }
std::size_t PerSampleGrad::bytes() const { return form_data().bytes(); }
void PerSampleGrad::count_as_kept() const { form_data().count_as_kept(); }
const detail::Form& PerSampleGrad::form_data() const { return content_->form; }
const NormEstimate& PerSampleGrad::inherited() const { return content_->inherited; }
const std::shared_ptr<const PerSampleGrad>& PerSampleGrad::captured() const {
  return content_->captured;
}

PerSampleGrad PerSampleGrad::outer(const Tensor& b, const Tensor& a, const Shape& shape,
                                   const Tensor& squares) {
  check(b.rank() == 3 && a.rank() == 3 && b.size(0) == a.size(0) && b.size(1) == a.size(1) &&
            b.size(2) * a.size(2) == shape.numel(),
        "PerSampleGrad::outer: factors {} and {} for the shape {}", b.shape(), a.shape(), shape);
  const Device device = common_device(b, a);
  const Tensor known = squares.defined() ? squares.to(device) : squares;
  return {Outer{contiguous(b.to(device)), contiguous(a.to(device)), known}, shape};
}

PerSampleGrad PerSampleGrad::patches(const Tensor& dy, const Tensor& x, const Window& window,
                                     const Shape& shape) {
  const Device device = common_device(dy, x);
  const Patches form{dy.to(device), x.to(device), window};
  check(dy.rank() == 5 && x.rank() == 5 && dy.size(0) == x.size(0) &&
            form.weight_shape().numel() == shape.numel(),
        "PerSampleGrad::patches: output gradient {} and input {} for the shape {}", dy.shape(),
        x.shape(), shape);
  return {form, shape};
}

PerSampleGrad PerSampleGrad::onehot(const Tensor& ids, const Tensor& b, const Shape& shape,
                                    bool gaps) {
  check(ids.rank() == 2 && b.rank() == 3 && ids.size(0) == b.size(0) &&
            (ids.size(1) == b.size(1) || b.size(1) == 1) && shape.rank() == 2 &&
            b.size(2) == shape[1],
        "PerSampleGrad::onehot: ids {} and rows {} for the shape {}", ids.shape(), b.shape(),
        shape);
  const bool repeats = b.size(1) > 1 && b.strides()[1] == 0;
  const Device device = common_device(ids, b);
  const Tensor vectors = contiguous((repeats ? b.slice(1, 0, 1) : b).to(device));
  return {OneHot{contiguous(ids.to(device)), vectors, gaps}, shape};
}

PerSampleGrad PerSampleGrad::materialized(const Tensor& gradients) {
  check(gradients.rank() >= 1, "PerSampleGrad::materialized: no sample axis in {}",
        gradients.shape());
  Shape shape = gradients.shape();
  shape.erase(0);
  return {Dense{contiguous(gradients)}, shape};
}

PerSampleGrad PerSampleGrad::captured_prefix(std::shared_ptr<const PerSampleGrad> captured,
                                             std::int64_t samples) {
  PerSampleGrad y = captured->slice(0, samples);
  y.content_->captured = std::move(captured);
  return y;
}

std::size_t PerSampleGrad::materialized_bytes() const {
  return static_cast<std::size_t>(samples() * shape().numel()) * size_of(dtype());
}

Tensor PerSampleGrad::materialize() const {
  const NoTf32Scope exact_factors;
  const LabelScope scope = LabelScope::kind(MemoryKind::per_sample_grad);
  return form_data().materialize(shape());
}

Tensor PerSampleGrad::sum() const {
  const NoTf32Scope exact_factors;
  // A single gradient may be its own sum, unless a copy of this has it, too.
  return content_.use_count() == 1 ? form_data().sum(shape())
                                   : detail::Form(form_data()).sum(shape());
}

Tensor PerSampleGrad::sum(const Tensor& weights) const {
  const NoTf32Scope exact_factors;
  check(weights.rank() == 1 && weights.size(0) == samples(),
        "PerSampleGrad::sum: weights {} for {} samples", weights.shape(), samples());
  return detail::weighted_sum(form_data(), shape(), weights);
}

void PerSampleGrad::add_to(const RoundedSum& sum, const Tensor& weights, const BlockEnds& ends,
                           std::int64_t uses) const {
  detail::add_rounded(*this, sum, weights, ends, uses);
}

PerSampleGrad PerSampleGrad::slice(std::int64_t begin, std::int64_t end) const {
  const auto part = [&](const Tensor& x) { return x.defined() ? x.slice(0, begin, end) : x; };
  return {form_data().slice(begin, end), shape(),
          NormEstimate{part(inherited().squares),
                       part(inherited().error_bounds),
                       part(inherited().term_norms),
                       {},
                       part(inherited().lost),
                       inherited().positions,
                       inherited().chain}};
}

PerSampleGrad PerSampleGrad::with_rows(const PerSampleGrad& other) const {
  const auto same = [](Tensor rows) { return rows; };
  const bool derived = form_data().as<Derived>() || other.form_data().as<Derived>();
  PerSampleGrad y = derived
                        ? PerSampleGrad(Derived{{*this, other}, same, shape(), dtype()}, shape())
                        : materialized(add(materialize(), other.materialize()));
  if (inherited().error_bounds.defined() || other.inherited().error_bounds.defined())
    y.content_->inherited = detail::rounding_bounds({*this, other});
  return y;
}

PerSampleGrad PerSampleGrad::reshaped(const Shape& shape) const {
  check(shape.numel() == this->shape().numel(), "PerSampleGrad::reshaped: {} to {}", this->shape(),
        shape);
  if (const auto* f = form_data().as<Dense>()) {
    Shape with_samples = shape;
    with_samples.insert(0, samples());
    PerSampleGrad y = materialized(reshape(f->gradients, with_samples));
    y.content_->inherited = inherited();
    return y;
  }
  if (const auto* f = form_data().as<Derived>()) {
    const auto with_shape = [pull_back = f->pull_back, shape](Tensor rows) {
      Shape all = shape;
      all.insert(0, rows.size(0));
      return reshape(pull_back(std::move(rows)), all);
    };
    return {Derived{f->uses, with_shape, shape, f->dtype}, shape, inherited()};
  }
  // Outer and patches forms do not depend on the parameter's axes; a table's form does.
  if (form_data().as<OneHot>()) return materialized(materialize()).reshaped(shape);
  return {form_data(), shape};
}

PerSampleGrad PerSampleGrad::permuted(const Shape& axes) const {
  if (const auto* f = form_data().as<Outer>()) {
    const bool matrix = shape().rank() == 2 && shape()[0] == f->b.size(2) && axes[0] % 2 != 0;
    if (matrix) return outer(f->a, f->b, {shape()[1], shape()[0]});
  }
  Shape order{0}, permuted;
  for (int k = 0; k < axes.rank(); ++k) {
    const std::int64_t axis = (axes[k] + axes.rank()) % axes.rank();
    order.push_back(axis + 1);
    permuted.push_back(shape()[static_cast<int>(axis)]);
  }
  if (const auto* f = form_data().as<Derived>()) {
    // Squared norms add up in another order.
    const auto in_order = [pull_back = f->pull_back, order](Tensor rows) {
      return contiguous(pull_back(std::move(rows)).permute(order));
    };
    return {Derived{f->uses, in_order, permuted, f->dtype}, permuted};
  }
  PerSampleGrad y = materialized(materialize().permute(order));
  y.content_->inherited = inherited();
  return y;
}

PerSampleGrad PerSampleGrad::materialize_if_cheaper(NormMethod norm_method,
                                                    std::size_t budget) const {
  if (form_data().as<Dense>() || materialized_bytes() > budget) return *this;
  if (!detail::keeps_materialized(*this, norm_method)) return *this;
  // The decision to materialize may depend on the other samples of the batch; error bounds must
  // not, so they are those of the factors.
  if (const auto* f = form_data().as<Patches>()) {
    Tensor norms;  // computed while gradients and images are in cache
    const auto materialize = [&] {
      const NoTf32Scope exact_factors;
      const LabelScope scope = LabelScope::kind(MemoryKind::per_sample_grad);
      return f->materialize(shape(), &norms);
    };
    PerSampleGrad kept = materialized(materialize());
    kept.content_->inherited =
        detail::conv_rounding_bounds(*this, norms.select(1, 1), norms.select(1, 2));
    kept.content_->inherited.squares = contiguous(norms.select(1, 0));
    return kept;
  }
  PerSampleGrad kept = materialized(materialize());
  if (form_data().positions() > 1) kept.content_->inherited = detail::rounding_bounds(*this, true);
  if (form_data().as<Derived>()) kept.content_->inherited = inherited();
  return kept;
}

PerSampleGrad PerSampleGrad::smallest_form() const {
  const bool derived = form_data().as<Derived>();
  if (!derived && materialized_bytes() >= bytes()) return *this;
  PerSampleGrad y = materialized(materialize());
  y.content_->inherited = derived ? inherited() : detail::rounding_bounds(*this, false);
  return y;
}

}  // namespace sotto
