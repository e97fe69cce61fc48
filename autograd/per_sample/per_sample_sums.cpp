// Sums of per-sample gradients that do not depend on the order of samples (rounded_sum.h): the
// terms of each form. docs/appendix/proofs-rounding.md, "The sum over units", bounds the rounding
// within a term.
#include <algorithm>
#include <cmath>

#include "autograd/per_sample/per_sample.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "kernels/tf32.h"

namespace sotto {

namespace {

// Samples of a product that are one term, at most: of one position, and positions of several.
constexpr double max_alone = 96, max_positions = 32;
// Images that are one term, and rows of these.
constexpr std::int64_t max_images = 32, max_image_rows = 256;
// Bytes of rows that are made together, to be added.
constexpr std::int64_t rows_together = std::int64_t{1} << 18;

// Adds the rows of x [n, ...], each a term, times a weight each.
void add_rows(const Tensor& x, const Tensor& weights, const RoundedSum& sum) {
  const Tensor rows = contiguous(x);
  backend(rows.device())
      .add_rounded(reshape(rows, {rows.size(0), sum.total.numel()}).view(),
                   weights.to(rows.device()).view(), sum.spacing,
                   reshape(sum.total, {sum.total.numel()}).view());
}

Tensor ones(std::int64_t count, Device device) { return full({count}, 1, Dtype::f64, device); }

}  // namespace

std::vector<std::int64_t> ends_within(std::span<const std::int64_t> ends, std::int64_t begin,
                                      std::int64_t end) {
  std::vector<std::int64_t> within(std::ranges::upper_bound(ends, begin),
                                   std::ranges::upper_bound(ends, end));
  for (std::int64_t& at : within) at -= begin;
  return within;
}

void add_term(const Tensor& term, const RoundedSum& sum) {
  add_rows(reshape(term, {1, term.numel()}), ones(1, term.device()), sum);
}

// Samples that are one term, at most, where the parameter is used so many times.
std::int64_t PerSampleGrad::max_together(std::int64_t uses) const {
  const double positions = this->positions() * static_cast<double>(uses);
  if (std::holds_alternative<Patches>(form_)) return static_cast<std::int64_t>(max_alone);
  const double max = positions <= 1 ? max_alone : max_positions / positions;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(max));
}

void PerSampleGrad::add_to(const RoundedSum& sum, const Tensor& weights, const BlockEnds& ends,
                           std::int64_t uses) const {
  const NoTf32Scope whole;
  check(weights.rank() == 1 && weights.size(0) == samples(),
        "PerSampleGrad::add_to: weights {} for {} samples", weights.shape(), samples());
  if (const auto* f = std::get_if<Dense>(&form_)) return add_rows(f->rows, weights, sum);
  if (std::holds_alternative<OneHot>(form_)) return add_table(sum, weights);
  // The blocks that there are must not decide this: a sample alone in its block is the same term
  // beside others.
  const std::int64_t max = ends ? max_together(uses) : 1;
  if (max == 1) return add_each(sum, weights);
  const std::vector<std::int64_t> blocks = ends(max);
  if (weights.device() != cpu && scaled_in_pieces()) {
    std::int64_t at = 0;
    for (const std::int64_t end : blocks) {
      add_term(slice(at, end).sum_in_pieces(weights.slice(0, at, end)), sum);
      at = end;
    }
    return;
  }
  const auto add_physical_batch = [&](const PerSampleGrad& part,
                                      std::span<const std::int64_t> part_ends) {
    if (std::holds_alternative<Patches>(form_)) return part.add_images(sum, part_ends);
    std::int64_t at = 0;
    for (const std::int64_t end : part_ends) {
      if (end > at) add_term(part.slice(at, end).sum(), sum);
      at = end;
    }
  };
  for_each_weighted(weights, blocks, add_physical_batch);
}

// The samples of blocks, cut again at every so many of them: each piece is a term.
void PerSampleGrad::add_images(const RoundedSum& sum, std::span<const std::int64_t> ends) const {
  const auto& f = std::get<Patches>(form_);
  std::int64_t piece =
      std::clamp<std::int64_t>(max_image_rows / (f.dy.size(2) * f.dy.size(3)), 1, max_images);
  constexpr std::int64_t together = 8;
  if (piece > together) piece -= piece % together;
  std::vector<std::int64_t> pieces;
  std::int64_t at = 0;
  for (const std::int64_t end : ends) {
    while (at < end) pieces.push_back(at = std::min(end, at + piece));
  }
  if (pieces.empty()) return;
  const Tensor total = reshape(sum.total, weight_shape(f.dy, f.x, f.window));
  Backend& here = backend(f.dy.device());
  if (here.conv_weight_rounded(f.dy.view(), f.x.view(), f.window, pieces, sum.spacing,
                               total.view()))
    return;
  at = 0;
  for (const std::int64_t end : pieces) {
    add_term(slice(at, end).sum(), sum);
    at = end;
  }
}

// Rows are made, some samples' at a time, and each is a term.
void PerSampleGrad::add_each(const RoundedSum& sum, const Tensor& weights) const {
  const std::int64_t n = samples(),
                     bytes = n == 0 ? 0 : static_cast<std::int64_t>(materialized_bytes()) / n;
  const std::int64_t step = std::max<std::int64_t>(1, rows_together / (bytes + 1));
  for (std::int64_t at = 0; at < n; at += step) {
    const std::int64_t end = std::min(n, at + step);
    add_rows(slice(at, end).materialize(), weights.slice(0, at, end), sum);
  }
}

// Each position's row of the table is a term.
void PerSampleGrad::add_table(const RoundedSum& sum, const Tensor& weights) const {
  const auto add_physical_batch = [&](const PerSampleGrad& part, auto) {
    const auto& f = std::get<OneHot>(part.form_);
    const RoundedSum rounded{zeros(f.b.shape(), Dtype::f64, f.b.device()), sum.spacing};
    add_term(f.b, rounded);
    OneHot{f.ids, rounded.total, f.gaps}.add_to(sum.total);
  };
  for_each_weighted(weights, {}, add_physical_batch);
}

}  // namespace sotto
