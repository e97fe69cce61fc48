#include "autograd/per_sample/deferred_sum.h"

#include <algorithm>

#include "autograd/per_sample/forms.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

using detail::Dense, detail::Derived, detail::Form, detail::OneHot, detail::Outer;

namespace {

// Rows begin .. end - 1 of the gradients with respect to a parameter of rows of `width` elements.
PerSampleGrad rows_of(const PerSampleGrad& use, std::int64_t begin, std::int64_t end,
                      std::int64_t width) {
  const Shape shape{end - begin, width};
  if (const auto* f = use.form_data().as<Outer>())
    return {Outer{f->b.slice(2, begin, end), f->a}, shape};
  const Tensor& all = use.form_data().as<Dense>()->gradients;
  const Tensor flat = reshape(all, {all.size(0), use.shape()[0], width});
  return {Dense{contiguous(flat.slice(1, begin, end))}, shape};
}

bool can_cut(const Form& form, std::int64_t width) {
  if (form.as<Dense>() || form.as<OneHot>()) return true;
  const auto* f = form.as<Outer>();
  return f && f->a.size(2) == width && !form.has_16bit_factor();
}

// The ends of the blocks that add_rounded() will ask for.
BlockEnds read_now(const Form& form, const BlockEnds& ends, std::int64_t uses) {
  if (!ends) return {};
  const std::int64_t max = detail::max_in_term(form, uses);
  return [fixed = ends(max)](std::int64_t) { return fixed; };
}

}  // namespace

std::shared_ptr<const DeferredSum> DeferredSum::of(const std::vector<PerSampleGrad>& uses,
                                                   const Tensor& weights, const BlockEnds& ends,
                                                   double spacing) {
  const Shape& shape = uses[0].shape();
  if (shape.rank() == 0 || shape.numel() == 0 || uses[0].device() != cpu ||
      uses[0].dtype() != Dtype::f32)
    return nullptr;
  const auto derived = [](const PerSampleGrad& use) { return use.form_data().as<Derived>(); };
  if (std::ranges::any_of(uses, derived)) return nullptr;  // it may read values of parameters
  const std::shared_ptr<DeferredSum> sum(new DeferredSum(shape, weights, spacing));
  sum->uses_ = std::ssize(uses);
  for (const PerSampleGrad& use : uses) {
    sum->parts_.push_back(sum->part_of(use, ends));
    sum->has_rows_ = sum->has_rows_ && can_cut(use.form_data(), sum->width());
  }
  return sum;
}

DeferredSum::Part DeferredSum::part_of(const PerSampleGrad& use, const BlockEnds& ends) const {
  const auto* table = use.form_data().as<OneHot>();
  if (!table) return Products{use, read_now(use.form_data(), ends, uses_)};
  std::vector<std::int64_t> numbers = table->ids.to_vector<std::int64_t>(), ids;
  constexpr std::int64_t absent = -1;
  std::vector<std::int64_t> places(static_cast<std::size_t>(shape_[0]), absent);  // in `ids`
  for (const std::int64_t id : numbers) {
    check(id < shape_[0], "deferred sum: id {} in a table of {} rows", id, shape_[0]);
    if (id >= 0) places[static_cast<std::size_t>(id)] = 0;
  }
  for (std::int64_t& place : places) {
    if (place == absent) continue;
    place = std::ssize(ids);
    ids.push_back(&place - places.data());
  }
  for (std::int64_t& id : numbers)
    if (id >= 0) id = places[static_cast<std::size_t>(id)];
  const OneHot rows{Tensor::from(numbers, table->ids.shape()), table->b, table->gaps};
  const Tensor sums = zeros({std::ssize(ids), width()}, Dtype::f64);
  detail::add_table(rows, shape_[0], {sums, spacing_}, weights_, uses_);
  return TableRows{std::move(ids), sums};
}

std::size_t DeferredSum::bytes() const {
  std::size_t bytes = 0;
  for (const Part& part : parts_) {
    const auto* products = std::get_if<Products>(&part);
    bytes += products ? products->use.bytes() : std::get<TableRows>(part).sums.bytes();
  }
  return bytes;
}

bool DeferredSum::reads(const Tensor& x) const {
  return std::ranges::any_of(parts_, [&](const Part& part) {
    const auto* products = std::get_if<Products>(&part);
    return products && products->use.form_data().visit([&](const auto& form) {
      return std::ranges::any_of(form.factors(),
                                 [&](const Tensor* factor) { return factor->shares_storage(x); });
    });
  });
}

void DeferredSum::add_rows(std::int64_t begin, std::int64_t end, const Tensor& sum) const {
  for (const Part& part : parts_) {
    if (const auto* products = std::get_if<Products>(&part)) {
      const bool all = begin == 0 && end == shape_[0];
      const PerSampleGrad rows = all ? products->use : rows_of(products->use, begin, end, width());
      const Tensor total = all ? reshape(sum, shape_) : sum;
      rows.add_to({total, spacing_}, weights_, products->ends, uses_);
      continue;
    }
    const auto& [ids, sums] = std::get<TableRows>(part);
    const auto first = std::ranges::lower_bound(ids, begin),
               last = std::lower_bound(first, ids.end(), end);
    if (first == last) continue;
    std::vector<std::int64_t> places(first, last);
    for (std::int64_t& place : places) place -= begin;
    const Tensor some = sums.slice(0, first - ids.begin(), last - ids.begin());
    scatter_add_into(some, Tensor::from(places, {std::ssize(places)}), 0, sum);
  }
}

Tensor DeferredSum::whole() const {
  const Tensor sum = zeros(shape_, Dtype::f64);
  add_rows(0, shape_[0], reshape(sum, {shape_[0], width()}));
  return sum;
}

}  // namespace sotto
