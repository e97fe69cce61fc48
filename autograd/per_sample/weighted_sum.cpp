#include "autograd/per_sample/weighted_sum.h"

#include <algorithm>

#include "autograd/per_sample/weighted_sum_bf16.h"
#include "kernels/backend.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::detail {

namespace {

// The number of samples to scale by their weights at once. The scaled copy may take 1/16 of the
// bytes of factors and sum (at least 1 MiB, for images 4, so that threads share several blocks; at
// most 16 MiB), so that a clipped sum needs hardly more memory than a plain one. From 16 samples on
// the number is a multiple of 64, so that two threads get whole oneDNN batches.
std::int64_t samples_at_once(const Form& form, const Shape& shape) {
  constexpr std::int64_t fraction = 16, mebibyte = std::int64_t{1} << 20, max_bytes = 16 * mebibyte,
                         multiple = 64;
  const std::int64_t values = form.factor_values(),
                     scaled = form.leading().numel() + (form.has_16bit_factor() ? values : 0),
                     element = static_cast<std::int64_t>(size_of(form.dtype())),
                     copied = element * scaled / std::max<std::int64_t>(1, form.samples()),
                     min_bytes = (form.as<Patches>() ? 4 : 1) * mebibyte,
                     fit = std::clamp(element * (values + shape.numel()) / fraction, min_bytes,
                                      max_bytes) /
                           (copied + 1);
  if (fit < multiple / 4) return std::max<std::int64_t>(1, fit);
  return std::max<std::int64_t>(1, fit / multiple) * multiple;
}

// The ids of the samples whose weight is not 0; nullopt if no weight is 0.
std::optional<std::vector<std::int64_t>> with_weight(const Tensor& weights) {
  const std::vector<double> w = to_dtype(weights, Dtype::f64).to_vector<double>();
  if (std::find(w.begin(), w.end(), 0.0) == w.end()) return std::nullopt;
  std::vector<std::int64_t> ids;
  for (std::size_t i = 0; i < w.size(); ++i) {
    if (w[i] != 0) ids.push_back(static_cast<std::int64_t>(i));
  }
  return ids;
}

// y = beta y + sum_n w[n] rows[n]
void add_weighted(const Tensor& rows, const Tensor& weights, double beta, const Tensor& y) {
  backend(y.device())
      .weighted_sum(reshape(rows, {rows.size(0), y.numel()}).view(), weights.to(y.device()).view(),
                    beta, reshape(y, {y.numel()}).view());
}

Tensor sum_of_chunks(const Derived& form, const Shape& shape, const Tensor& weights) {
  const Tensor y = zeros(shape, form.dtype);
  form.for_each_chunk([&](const Tensor& rows, std::int64_t begin, std::int64_t end) {
    add_weighted(rows, weights.slice(0, begin, end), 1, y);
  });
  return y;
}

}  // namespace

void for_each_weighted(
    const Form& form, const Shape& shape, const Tensor& weights, std::span<const std::int64_t> ends,
    const std::function<void(const Form& chunk, std::span<const std::int64_t> chunk_ends)>& f) {
  const bool on_cpu = weights.device() == cpu;
  const std::int64_t n = form.samples(), step = samples_at_once(form, shape);
  auto block = ends.begin();
  std::int64_t at = 0;
  do {
    std::int64_t end = std::min(n, at + step);
    const auto first = block;
    for (; block != ends.end() && (block == first || *block <= at + step); ++block) end = *block;
    const Tensor w = weights.slice(0, at, end);
    const auto ids = on_cpu ? with_weight(w) : std::nullopt;
    const Form slice = form.slice(at, end);
    const Form all = form.has_16bit_factor() ? slice.in_type(form.dtype()) : slice;
    std::vector<std::int64_t> chunk_ends;
    for (auto of = first; of != block; ++of)
      chunk_ends.push_back(ids ? std::ranges::lower_bound(*ids, *of - at) - ids->begin()
                               : *of - at);
    if (ids) {
      const Tensor rows = Tensor::from(*ids, {std::ssize(*ids)});
      f(all.select(rows).scale(gather(w, rows, 0)), chunk_ends);
    } else {
      // The host does not read the weights of a GPU.
      f((on_cpu ? all : all.mask(w)).scale(w), chunk_ends);
    }
    at = end;
  } while (at < n);
}

Tensor weighted_sum(const Form& form, const Shape& shape, const Tensor& weights) {
  if (const auto* f = form.as<Dense>()) {
    const Tensor y = Tensor::empty(shape, form.dtype(), form.device());
    add_weighted(f->gradients, weights, 0, y);
    return y;
  }
  if (const auto* f = form.as<Derived>()) return sum_of_chunks(*f, shape, weights);
  if (weights.device() != cpu && is_split_into_bf16(form))
    return weighted_sum_bf16(form, shape, weights);
  Tensor y;
  for_each_weighted(form, shape, weights, {}, [&](const Form& chunk, auto) {
    if (y.defined())
      chunk.add_sum(y);
    else
      y = chunk.sum(shape);
  });
  return y;
}

}  // namespace sotto::detail
