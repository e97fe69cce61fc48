// Gradients that are pulled back through the computation of a weight when they are read.
#include <algorithm>

#include "autograd/per_sample/forms.h"
#include "core/threads/parallel.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::detail {

namespace {

Shape with_samples(std::int64_t n, const Shape& shape) {
  Shape y = shape;
  y.insert(0, n);
  return y;
}

std::vector<PerSampleGrad> slices(const std::vector<PerSampleGrad>& uses, std::int64_t begin,
                                  std::int64_t end) {
  std::vector<PerSampleGrad> y;
  for (const PerSampleGrad& use : uses) y.push_back(use.slice(begin, end));
  return y;
}

}  // namespace

Tensor rows_of_uses(const std::vector<PerSampleGrad>& uses) {
  Tensor y;
  for (const PerSampleGrad& use : uses) {
    const Tensor part = use.materialize();
    check(!y.defined() || y.size(0) == part.size(0),
          "backward: a shared value is used with {} samples and with {} samples",
          y.defined() ? y.size(0) : 0, part.size(0));
    y = y.defined() ? add(y, part) : part;
  }
  return y;
}

Tensor sum_of_uses(const std::vector<PerSampleGrad>& uses) {
  Tensor y;
  for (const PerSampleGrad& use : uses) {
    const Tensor part = use.sum();
    y = y.defined() ? add(y, part) : part;
  }
  return y;
}

// At once are one sample for each thread, or as many for each as caches hold.
void for_each_rows(
    const std::vector<PerSampleGrad>& uses,
    const std::function<void(Tensor rows, std::int64_t begin, std::int64_t end)>& f) {
  constexpr std::size_t cached = std::size_t{8} << 20;
  const std::int64_t n = uses[0].samples();
  const std::size_t bytes = uses[0].materialized_bytes() / static_cast<std::size_t>(n + 1) + 1;
  const std::int64_t threads = thread_count(),
                     fit = static_cast<std::int64_t>(cached / bytes) / threads * threads,
                     step = std::max(threads, fit);
  for (std::int64_t at = 0; at < n; at += step) {
    const std::int64_t end = std::min(n, at + step);
    f(rows_of_uses(slices(uses, at, end)), at, end);
  }
}

std::array<const Tensor*, 1> Derived::factors() const { return {&uses[0].form_data().leading()}; }

std::size_t Derived::bytes() const {
  std::size_t bytes = 0;
  for (const PerSampleGrad& use : uses) bytes += use.bytes();
  return bytes;
}

void Derived::for_each_chunk(
    const std::function<void(const Tensor& rows, std::int64_t begin, std::int64_t end)>& f) const {
  for_each_rows(uses, [&](Tensor rows, std::int64_t begin, std::int64_t end) {
    f(pull_back(std::move(rows)), begin, end);
  });
}

Tensor Derived::materialize(const Shape&) const {
  const std::int64_t n = uses[0].samples();
  Tensor y;
  for_each_chunk([&](const Tensor& rows, std::int64_t begin, std::int64_t end) {
    if (begin == 0 && end == n) {
      y = rows;
      return;
    }
    if (!y.defined()) y = Tensor::empty(with_samples(n, shape), dtype, rows.device());
    copy_into(rows, y.slice(0, begin, end));
  });
  return y.defined() ? y : zeros(with_samples(n, shape), dtype, uses[0].device());
}

Tensor Derived::sum(const Shape&) const {
  return pull_back(sum_of_uses(uses).unsqueeze(0)).squeeze(0);
}

void Derived::add_sum(const Tensor& y) const { axpby(1, sum(y.shape()), 1, y); }

Derived Derived::slice(std::int64_t begin, std::int64_t end) const {
  return {slices(uses, begin, end), pull_back, shape, dtype};
}

// Rows have the bits of slices, so that a sample's do not depend on how it was selected.
Dense Derived::select(const Tensor& ids) const {
  const std::vector<std::int64_t> numbers = ids.to_vector<std::int64_t>();
  const auto count = std::ssize(numbers);
  const Tensor y = zeros(with_samples(count, shape), dtype, uses[0].device());
  for (std::int64_t first = 0, end = 0; first < count; first = end) {
    const std::int64_t id = numbers[static_cast<std::size_t>(first)];
    end = first + 1;
    if (id < 0) continue;
    while (end < count && numbers[static_cast<std::size_t>(end)] == id + end - first) ++end;
    const auto write = [&](const Tensor& rows, std::int64_t from, std::int64_t to) {
      copy_into(rows, y.slice(0, first + from, first + to));
    };
    slice(id, id + end - first).for_each_chunk(write);
  }
  return {y};
}

Dense Derived::scale(const Tensor& weights) const {
  return Dense{materialize(shape)}.scale(weights);
}
Dense Derived::mask(const Tensor& weights) const { return Dense{materialize(shape)}.mask(weights); }
Dense Derived::in_type(Dtype type) const { return Dense{materialize(shape)}.in_type(type); }

}  // namespace sotto::detail
