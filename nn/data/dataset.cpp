#include "nn/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

#include "core/error.h"
#include "core/io/unnamed_file.h"
#include "core/io/xxh64.h"
#include "core/join.h"
#include "core/random/philox.h"
#include "core/threads/parallel.h"

namespace sotto {

namespace {

// The first Philox stream of epoch permutations: ASCII "orde", then the epoch.
constexpr std::uint64_t order_stream = 0x6f72646500000000;
// Those of split() and shuffle(): ASCII "split" and "shuf".
constexpr std::uint64_t split_stream = 0x73706c6974000000;
constexpr std::uint64_t shuffle_stream = 0x7368756600000000;
constexpr std::int64_t gather_grain = 64;
// A larger read-ahead could evict its own first pages. Each row costs one more page, of 4 KiB.
constexpr std::size_t max_ahead = std::size_t{1} << 26, page = std::size_t{1} << 12;

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

namespace {

void check_field(const std::string& name, const Tensor& x, const Tensor& inputs) {
  check(x.defined() && x.rank() >= 1, "dataset: {} need a sample axis", name);
  check(x.contiguous() && x.device() == cpu, "dataset: {} {} are not row-major on the CPU", name,
        x.shape());
  check(x.size(0) == inputs.size(0), "dataset: sample counts differ: inputs {}, {} {}",
        inputs.shape(), name, x.shape());
}

}  // namespace

std::int64_t Dataset::size() const {
  check_field("inputs", inputs, inputs);
  check_field("targets", targets, inputs);
  for (const auto& [name, x] : fields) check_field(name, x, inputs);
  const std::int64_t n = inputs.size(0);
  check(units.empty() || std::ssize(units) == n, "dataset: {} samples and the units of {}", n,
        units.size());
  return n;
}

const Tensor& Dataset::field(const std::string& name) const {
  const auto found = fields.find(name);
  check(found != fields.end(), "dataset: no field {} among: {}", name,
        join(fields, ", ", [](const auto& field) { return field.first; }));
  return found->second;
}

std::vector<std::vector<std::int64_t>> Dataset::rows_of_units() const {
  const std::int64_t n = size();
  std::map<std::int64_t, std::vector<std::int64_t>> rows;
  for (std::int64_t row = 0; row < n; ++row) {
    rows[units.empty() ? row : units[static_cast<std::size_t>(row)]].push_back(row);
  }
  std::vector<std::vector<std::int64_t>> all;
  for (auto& [unit, of_unit] : rows) all.push_back(std::move(of_unit));
  return all;
}

std::int64_t Dataset::unit_count() const {
  const std::int64_t n = size();
  return units.empty() ? n : std::ssize(std::set<std::int64_t>(units.begin(), units.end()));
}

Dataset Dataset::map(const std::function<Tensor(const Tensor&)>& f) const {
  Dataset y;
  for (const auto& [name, x] : fields) y.fields[name] = f(x);
  y.targets = f(targets);
  y.inputs = f(inputs);
  return y;
}

void Dataset::check_rows(std::span<const std::int64_t> rows) const {
  const std::int64_t n = size();
  for (const std::int64_t row : rows) {
    check(row >= 0 && row < n, "batch: row {} of {} samples", row, n);
  }
}

void Dataset::read_ahead(std::span<const std::int64_t> rows) const {
  const std::int64_t n = size();
  map([&](const Tensor& x) {
    const std::size_t bytes = sample_bytes(x);
    if (!x.in_block() || bytes == 0) return x;
    const auto* const from = x.view().as<const std::byte>();
    std::size_t left = max_ahead;
    for (const std::int64_t row : rows) {
      if (row < 0 || row >= n) continue;
      if (left < bytes + page) break;
      left -= bytes + page;
      sotto::read_ahead({from + static_cast<std::size_t>(row) * bytes, bytes});
    }
    return x;
  });
}

Dataset Dataset::batch(std::span<const std::int64_t> rows) const {
  check_rows(rows);
  Dataset y = map([&](const Tensor& x) { return gather(x, rows); });
  y.units = units_of(rows);
  return y;
}

std::uint64_t Dataset::hash(std::uint64_t seed) const {
  if (inputs.defined()) size();  // checks them
  const auto bytes_of = [](const auto& values) { return std::as_bytes(std::span(values)); };
  std::uint64_t hash = xxh64(bytes_of(units), seed);
  const auto add = [&](const std::string& what, const Tensor& x) {
    if (!x.defined()) return;
    hash = xxh64(bytes_of(fmt::format("{} {} {}", what, name(x.dtype()), x.shape())), hash);
    hash = xxh64({x.view().as<const std::byte>(), x.bytes()}, hash);
  };
  add("inputs", inputs);
  add("targets", targets);
  for (const auto& [field, values] : fields) add("field " + field, values);
  return hash;
}

std::vector<std::int64_t> Dataset::units_of(std::span<const std::int64_t> rows) const {
  std::vector<std::int64_t> y;
  for (const std::int64_t row : rows) {
    if (!units.empty()) y.push_back(units[static_cast<std::size_t>(row)]);
  }
  return y;
}

Dataset Dataset::slice(std::int64_t begin, std::int64_t end) const {
  check(0 <= begin && begin <= end && end <= size(), "slice: samples {} to {} of {}", begin, end,
        size());
  Dataset y = map([&](const Tensor& x) { return x.slice(0, begin, end); });
  if (!units.empty()) y.units.assign(units.begin() + begin, units.begin() + end);
  return y;
}

namespace {

// Returns 0 .. n - 1 in a random order, which depends on the seed and the stream.
std::vector<std::int64_t> permutation(std::int64_t n, std::uint64_t seed, std::uint64_t stream) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  PublicRandom(seed, stream).shuffle(order);
  return order;
}

}  // namespace

std::pair<Dataset, Dataset> Dataset::split(double fraction, std::uint64_t seed) const {
  check(fraction >= 0 && fraction <= 1, "split: a fraction of {}", fraction);
  const std::vector<std::vector<std::int64_t>> rows = rows_of_units();
  const auto first = std::llround(fraction * static_cast<double>(rows.size()));
  std::vector<std::int64_t> parts[2];
  std::int64_t drawn = 0;
  for (const std::int64_t unit : permutation(std::ssize(rows), seed, split_stream)) {
    std::vector<std::int64_t>& part = parts[drawn++ < first ? 0 : 1];
    const auto& of_unit = rows[static_cast<std::size_t>(unit)];
    part.insert(part.end(), of_unit.begin(), of_unit.end());
  }
  for (auto& part : parts) std::sort(part.begin(), part.end());
  return {batch(parts[0]), batch(parts[1])};
}

Dataset Dataset::shuffle(std::uint64_t seed) const {
  return batch(permutation(size(), seed, shuffle_stream));
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
    order_ = permutation(rows_, seed_, order_stream + static_cast<std::uint64_t>(at_.epoch));
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
