#include "nn/data/dataset.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/error.h"
#include "core/random/philox.h"
#include "core/threads/parallel.h"

namespace sotto {

namespace {

// The first Philox stream of epoch permutations: ASCII "orde", then the epoch.
constexpr std::uint64_t order_stream = 0x6f72646500000000;
constexpr std::int64_t gather_grain = 64;

std::size_t sample_bytes(const Tensor& x) {
  return x.numel() == 0 ? 0 : x.bytes() / static_cast<std::size_t>(x.size(0));
}

// Row k of the result is row rows[k] of the row-major x.
Tensor gather(const Tensor& x, std::span<const std::int64_t> rows) {
  Shape shape = x.shape();
  shape[0] = static_cast<std::int64_t>(rows.size());
  Tensor y = Tensor::empty(shape, x.dtype());
  std::byte* const to = y.view().as<std::byte>();
  parallel_for(shape[0], gather_grain, [&](std::int64_t begin, std::int64_t end) {
    const auto first = static_cast<std::size_t>(begin),
               count = static_cast<std::size_t>(end) - first;
    copy_rows(x, rows.subspan(first, count), to + first * sample_bytes(x));
  });
  return y;
}

}  // namespace

void copy_rows(const Tensor& x, std::span<const std::int64_t> rows, std::byte* to) {
  const std::size_t bytes = sample_bytes(x);
  if (bytes == 0) return;
  const auto* const from = x.view().as<const std::byte>();
  for (const std::int64_t row : rows) {
    std::memcpy(to, from + static_cast<std::size_t>(row) * bytes, bytes);
    to += bytes;
  }
}

std::int64_t Dataset::size() const {
  for (const Tensor* x : {&inputs, &targets}) {
    check(x->defined() && x->rank() >= 1, "dataset: inputs and targets need a sample axis");
    check(x->contiguous() && x->device() == cpu, "dataset: {} is not row-major on the CPU",
          x->shape());
  }
  check(inputs.size(0) == targets.size(0), "dataset: sample counts differ: inputs {}, targets {}",
        inputs.shape(), targets.shape());
  return inputs.size(0);
}

void Dataset::check_rows(std::span<const std::int64_t> rows) const {
  const std::int64_t n = size();
  for (const std::int64_t row : rows) {
    check(row >= 0 && row < n, "batch: row {} of {} samples", row, n);
  }
}

Dataset Dataset::batch(std::span<const std::int64_t> rows) const {
  check_rows(rows);
  return {gather(inputs, rows), gather(targets, rows)};
}

Dataset Dataset::slice(std::int64_t begin, std::int64_t end) const {
  check(0 <= begin && begin <= end && end <= size(), "slice: samples {} to {} of {}", begin, end,
        size());
  return {inputs.slice(0, begin, end), targets.slice(0, begin, end)};
}

ShuffledBatches::ShuffledBatches(std::int64_t rows, std::int64_t batch, std::uint64_t seed)
    : rows_(rows), batch_(batch), seed_(seed) {
  check(rows >= 1 && batch >= 1, "shuffled_batches: {} rows in batches of {}", rows, batch);
}

std::vector<std::int64_t> ShuffledBatches::next() {
  std::vector<std::int64_t> rows = peek();
  at_.row += std::ssize(rows);
  if (at_.row == rows_) at_ = {at_.epoch + 1, 0};
  return rows;
}

std::vector<std::int64_t> ShuffledBatches::peek() {
  if (shuffled_ != at_.epoch) {
    order_.resize(static_cast<std::size_t>(rows_));
    std::iota(order_.begin(), order_.end(), std::int64_t{0});
    PublicRandom(seed_, order_stream + static_cast<std::uint64_t>(at_.epoch)).shuffle(order_);
    shuffled_ = at_.epoch;
  }
  const std::int64_t count = std::min(batch_, rows_ - at_.row);
  const auto first = order_.begin() + at_.row;
  return {first, first + count};
}

void ShuffledBatches::seek(Position position) {
  check(position.epoch >= 0 && position.row >= 0 && position.row < rows_ &&
            position.row % batch_ == 0,
        "shuffled_batches: no batch of {} begins at row {} of {} in epoch {}", batch_, position.row,
        rows_, position.epoch);
  at_ = position;
}

}  // namespace sotto
