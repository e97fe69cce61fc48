#include "autograd/per_sample/rounded_sum.h"

#include <algorithm>
#include <cmath>

#include "autograd/per_sample/forms.h"
#include "autograd/per_sample/padded_outer.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/per_sample/rounded_products.h"
#include "autograd/per_sample/weighted_sum.h"
#include "autograd/per_sample/weighted_sum_bf16.h"
#include "kernels/backend.h"
#include "kernels/chunk_bytes.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "kernels/tf32.h"

namespace sotto {

namespace {

// A term sums at most max_samples samples of one position each, or samples with max_positions
// positions together, unless a single sample has more.
constexpr double max_samples = 96, max_positions = 32;
// A term of a convolution sums at most max_images images with max_image_rows rows together, unless
// a single image has more.
constexpr std::int64_t max_images = 32, max_image_rows = 256;
// Bytes of gradients that are materialized at a time and added.
constexpr std::int64_t cpu_chunk_bytes = std::int64_t{1} << 18;

// Adds w[n] x[n] for each n, each as one term.
void add_terms(const Tensor& x, const Tensor& weights, const RoundedSum& sum) {
  const Tensor terms = contiguous(x);
  backend(terms.device())
      .add_rounded(reshape(terms, {terms.size(0), sum.total.numel()}).view(),
                   weights.to(terms.device()).view(), sum.spacing,
                   reshape(sum.total, {sum.total.numel()}).view());
}

}  // namespace

std::vector<std::int64_t> ends_within(std::span<const std::int64_t> ends, std::int64_t begin,
                                      std::int64_t end) {
  std::vector<std::int64_t> within(std::ranges::upper_bound(ends, begin),
                                   std::ranges::upper_bound(ends, end));
  for (std::int64_t& at : within) at -= begin;
  return within;
}

void add_term(const Tensor& term, const RoundedSum& sum) {
  add_terms(reshape(term, {1, term.numel()}), full({1}, 1, Dtype::f64, term.device()), sum);
}

namespace detail {

std::int64_t max_in_term(const Form& form, std::int64_t uses) {
  if (form.as<Patches>()) return static_cast<std::int64_t>(max_samples);
  const double positions = form.positions() * static_cast<double>(uses);
  const double max = positions <= 1 ? max_samples : max_positions / positions;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(max));
}

namespace {

// Adds each sample's gradient as one term; a few samples are materialized at a time.
void add_each(const PerSampleGrad& gradient, const RoundedSum& sum, const Tensor& weights) {
  const std::int64_t n = gradient.samples();
  const auto bytes = n == 0 ? 0 : static_cast<std::int64_t>(gradient.materialized_bytes()) / n;
  const std::int64_t step =
      std::max<std::int64_t>(1, chunk_bytes(weights.device(), cpu_chunk_bytes) / (bytes + 1));
  for (std::int64_t at = 0; at < n; at += step) {
    const std::int64_t end = std::min(n, at + step);
    add_terms(gradient.slice(at, end).materialize(), weights.slice(0, at, end), sum);
  }
}

// Adds the sum of each sample's rows as one term.
void add_table_each(const Form& chunk, const Shape& shape, const RoundedSum& sum) {
  const OneHot& f = *chunk.as<OneHot>();
  for (std::int64_t n = 0; n < f.ids.size(0); ++n) {
    const Tensor alone = zeros(shape, Dtype::f64, f.b.device());
    f.slice(n, n + 1).in_type(Dtype::f64).add_sum(alone);
    add_term(to_dtype(alone, f.b.dtype()), sum);
  }
}

// Adds the product of each block as one term. As many products as fit the cache are kept at a time,
// so that the sum is read and written once for all of them.
void add_block_products(const Outer& f, const Shape& shape, const RoundedSum& sum,
                        std::span<const std::int64_t> ends) {
  const std::int64_t positions = f.b.size(1), width = f.a.size(2),
                     rows = own_columns(f, shape).size(2),
                     bytes = rows * width * static_cast<std::int64_t>(size_of(f.b.dtype())),
                     together =
                         std::clamp<std::int64_t>(cpu_chunk_bytes / (bytes + 1), 1,
                                                  std::max<std::int64_t>(1, std::ssize(ends)));
  const Tensor columns = flat(f.b).slice(1, 0, rows).transpose(0, 1), inputs = flat(f.a),
               products = Tensor::empty({together, rows, width}, f.b.dtype()),
               ones = full({together}, 1, Dtype::f64);
  std::int64_t kept = 0, at = 0;
  const auto add_kept = [&] {
    add_terms(products.slice(0, 0, kept), ones.slice(0, 0, kept), sum);
    kept = 0;
  };
  for (const std::int64_t end : ends) {
    if (end == at) continue;
    const std::int64_t first = at * positions, last = end * positions;
    backend(cpu).gemm(columns.slice(1, first, last).view(), inputs.slice(0, first, last).view(), 0,
                      products.select(0, kept).view());
    if (++kept == together) add_kept();
    at = end;
  }
  if (kept > 0) add_kept();
}

// Adds each block as one term.
void add_blocks(const Form& chunk, const Shape& shape, const RoundedSum& sum,
                std::span<const std::int64_t> ends) {
  const auto* f = chunk.as<Outer>();
  if (f && f->b.device() == cpu && f->a.size(2) > 0)
    return add_block_products(*f, shape, sum, ends);
  std::int64_t at = 0;
  for (const std::int64_t end : ends) {
    if (end > at) add_term(chunk.slice(at, end).sum(shape), sum);
    at = end;
  }
}

// Splits each block into pieces of a fixed number of images, and adds each piece as one term.
void add_images(const Form& chunk, const Shape& shape, const RoundedSum& sum,
                std::span<const std::int64_t> ends) {
  const Patches& f = *chunk.as<Patches>();
  std::int64_t piece =
      std::clamp<std::int64_t>(max_image_rows / (f.dy.size(2) * f.dy.size(3)), 1, max_images);
  constexpr std::int64_t together = 8;  // images in one batch of a convolution
  if (piece > together) piece -= piece % together;
  std::vector<std::int64_t> pieces;
  std::int64_t at = 0;
  for (const std::int64_t end : ends) {
    while (at < end) pieces.push_back(at = std::min(end, at + piece));
  }
  if (pieces.empty()) return;
  const Tensor total = reshape(sum.total, f.weight_shape());
  Backend& device = backend(f.dy.device());
  const bool added = device.conv_weight_rounded(f.dy.view(), f.x.view(), f.window, pieces,
                                                sum.spacing, total.view());
  if (!added) add_blocks(chunk, shape, sum, pieces);
}

// Adds each image's gradient as one term. Returns false without any effect for other forms, and
// where the backend has no kernel for it.
bool add_each_image(const Form& form, const RoundedSum& sum, const Tensor& weights,
                    std::int64_t uses) {
  constexpr std::int64_t max_terms = 256;  // as in add_rounded_products()
  const auto* f = form.as<Patches>();
  if (!f || f->dy.device() != cpu || uses > max_terms) return false;
  const Tensor w = contiguous(to_dtype(weights, Dtype::f64).to(cpu)),
               total = reshape(sum.total, f->weight_shape());
  return backend(cpu).add_rounded_weights(f->dy.view(), f->x.view(), f->window, w.view(),
                                          sum.spacing, total.view());
}

// Adds each block as one term, on a GPU with factors split into bf16; the sums of some blocks are
// kept at a time.
void add_split_blocks(const PerSampleGrad& gradient, const RoundedSum& sum, const Tensor& weights,
                      std::span<const std::int64_t> ends) {
  constexpr std::int64_t kept_bytes = std::int64_t{64} << 20;
  const std::int64_t width = gradient.shape().numel(), blocks = std::ssize(ends),
                     fit = kept_bytes / (width * static_cast<std::int64_t>(sizeof(float)) + 1),
                     step = std::clamp<std::int64_t>(fit, 1, std::max<std::int64_t>(blocks, 1));
  const Device device = weights.device();
  const Tensor scaled = lifted(weights), unlift = full({step}, 1 / bf16_lift, Dtype::f64, device),
               sums = Tensor::empty({step, width}, gradient.dtype(), device);
  for (std::int64_t first = 0; first < blocks; first += step) {
    const std::int64_t count = std::min(step, blocks - first),
                       begin = first == 0 ? 0 : ends[static_cast<std::size_t>(first - 1)],
                       end = ends[static_cast<std::size_t>(first + count - 1)];
    const std::vector<std::int64_t> within = ends_within(ends, begin, end);
    lifted_sums_bf16(gradient.form_data().slice(begin, end), scaled.slice(0, begin, end), within,
                     sums);
    add_terms(sums.slice(0, 0, count), unlift.slice(0, 0, count), sum);
  }
}

}  // namespace

void add_table(const OneHot& table, std::int64_t table_rows, const RoundedSum& sum,
               const Tensor& weights, std::int64_t uses) {
  constexpr double terms = 256;  // docs/appendix/proofs-rounding.md
  const Shape shape = sum.total.shape();
  const auto add_chunk = [&](const Form& chunk, auto) {
    const OneHot& f = *chunk.as<OneHot>();
    const auto places = static_cast<double>(f.ids.numel()) * static_cast<double>(uses);
    const auto rows = static_cast<double>(table_rows);
    if (places > terms * std::sqrt(rows) * static_cast<double>(f.ids.size(0)))
      return add_table_each(chunk, shape, sum);
    const RoundedSum rounded{zeros(f.b.shape(), Dtype::f64, f.b.device()), sum.spacing};
    add_term(f.b, rounded);
    OneHot{f.ids, rounded.total, f.gaps}.add_sum(sum.total);
  };
  for_each_weighted(table, shape, weights, {}, add_chunk);
}

void add_rounded(const PerSampleGrad& gradient, const RoundedSum& sum, const Tensor& weights,
                 const BlockEnds& ends, std::int64_t uses) {
  const NoTf32Scope exact_factors;
  check(weights.rank() == 1 && weights.size(0) == gradient.samples(),
        "PerSampleGrad::add_to: weights {} for {} samples", weights.shape(), gradient.samples());
  const Form& form = gradient.form_data();
  if (const auto* f = form.as<Dense>()) return add_terms(f->gradients, weights, sum);
  if (const auto* f = form.as<Derived>()) {
    return f->for_each_chunk([&](const Tensor& rows, std::int64_t begin, std::int64_t end) {
      add_terms(rows, weights.slice(0, begin, end), sum);
    });
  }
  if (const auto* f = form.as<OneHot>())
    return add_table(*f, gradient.shape()[0], sum, weights, uses);
  // The choice must not depend on the blocks of this batch: a sample that is alone in its block
  // must be the same term as in any other batch.
  if (add_each_image(form, sum, weights, uses)) return;
  const std::int64_t together = ends ? max_in_term(form, uses) : 1;
  if (together == 1) {
    const auto* f = form.as<Outer>();
    if (!f || !add_rounded_products(*f, sum, weights, uses)) add_each(gradient, sum, weights);
    return;
  }
  const std::vector<std::int64_t> blocks = ends(together);
  if (weights.device() != cpu && is_split_into_bf16(form))
    return add_split_blocks(gradient, sum, weights, blocks);
  const auto add = form.as<Patches>() ? add_images : add_blocks;
  for_each_weighted(form, gradient.shape(), weights, blocks,
                    [&](const Form& chunk, std::span<const std::int64_t> chunk_ends) {
                      add(chunk, gradient.shape(), sum, chunk_ends);
                    });
}

}  // namespace detail

}  // namespace sotto
