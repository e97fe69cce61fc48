#include "samples/reweight/row_noise.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string_view>
#include <unordered_set>

#include "core/error.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::reweight {

namespace {

// Streams of public randomness: ASCII "clean", "tails", "wrong", "label".
constexpr std::uint64_t clean_stream = 0x636c65616e, tail_stream = 0x7461696c73,
                        wrong_stream = 0x77726f6e67, label_stream = 0x6c6162656c;

std::vector<std::int64_t> shuffled(std::int64_t count, std::uint64_t seed, std::uint64_t stream) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  PublicRandom(seed, stream).shuffle(order);
  return order;
}

std::span<const std::int64_t> labels_of(const Dataset& data) {
  return {data.targets.data<std::int64_t>(), static_cast<std::size_t>(data.size())};
}

// Divides the rows, taken in this order, into those that are among the first wanted[c] of their
// class c, and the others; both sorted. `wanted` becomes what is missing.
std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>> first_of_classes(
    const Dataset& data, std::span<const std::int64_t> order, std::vector<std::int64_t>& wanted) {
  const auto labels = labels_of(data);
  std::vector<std::int64_t> taken, left;
  for (const std::int64_t row : order) {
    std::int64_t& missing =
        wanted.at(static_cast<std::size_t>(labels[static_cast<std::size_t>(row)]));
    (missing > 0 ? taken : left).push_back(row);
    missing = std::max<std::int64_t>(0, missing - 1);
  }
  std::sort(taken.begin(), taken.end());
  std::sort(left.begin(), left.end());
  return {std::move(taken), std::move(left)};
}

std::string_view row_bytes(const Tensor& x, std::int64_t row) {
  const std::size_t bytes = x.bytes() / static_cast<std::size_t>(x.size(0));
  return {x.view().as<const char>() + static_cast<std::size_t>(row) * bytes, bytes};
}

}  // namespace

std::pair<Dataset, Dataset> hold_out_clean(const Dataset& data, std::int64_t classes,
                                           std::int64_t count, std::uint64_t seed) {
  std::vector<std::int64_t> wanted(static_cast<std::size_t>(classes), count / classes);
  for (std::int64_t k = 0; k < count % classes; ++k) ++wanted[static_cast<std::size_t>(k)];
  const auto order = shuffled(data.size(), seed, clean_stream);
  const auto [clean, rest] = first_of_classes(data, order, wanted);
  const auto lacking =
      std::find_if(wanted.begin(), wanted.end(), [](std::int64_t missing) { return missing > 0; });
  check(lacking == wanted.end(), "--clean: {} rows, but class {} has {} too few", count,
        lacking - wanted.begin(), lacking == wanted.end() ? 0 : *lacking);
  return {data.batch(clean), data.batch(rest)};
}

std::vector<std::int64_t> long_tailed_counts(std::int64_t largest, std::int64_t classes,
                                             double factor) {
  std::vector<std::int64_t> counts;
  for (std::int64_t k = 0; k < classes; ++k) {
    const double place = static_cast<double>(k) / static_cast<double>(classes - 1);
    counts.push_back(
        static_cast<std::int64_t>(static_cast<double>(largest) / std::pow(factor, place)));
  }
  return counts;
}

Dataset make_long_tailed(const Dataset& data, std::int64_t classes, double factor,
                         std::uint64_t seed) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(classes));
  for (const std::int64_t label : labels_of(data)) ++sizes.at(static_cast<std::size_t>(label));
  const std::int64_t largest = *std::min_element(sizes.begin(), sizes.end());
  const auto counts = long_tailed_counts(largest, classes, factor);
  check(counts.back() >= 1, "--imbalance: {} of {} rows a class leaves a class without any", factor,
        largest);
  const auto place = shuffled(classes, seed, tail_stream);
  std::vector<std::int64_t> wanted(sizes.size());
  for (std::size_t k = 0; k < wanted.size(); ++k)
    wanted[static_cast<std::size_t>(place[k])] = counts[k];
  return data.batch(
      first_of_classes(data, shuffled(data.size(), seed, tail_stream + 1), wanted).first);
}

Dataset make_wrong_labels(const Dataset& data, std::int64_t classes, double fraction,
                          const std::string& wrong, std::uint64_t seed) {
  check(wrong == wrong_next || wrong == wrong_random, "--wrong: no kind is called {}", wrong);
  Dataset noisy = data;
  noisy.targets = clone(data.targets);
  noisy.fields[changed_field] = zeros({data.size()}, Dtype::i64);
  auto* const labels = noisy.targets.data<std::int64_t>();
  auto* const changed = noisy.fields[changed_field].data<std::int64_t>();
  const auto count = std::llround(fraction * static_cast<double>(data.size()));
  const auto order = shuffled(data.size(), seed, wrong_stream);
  PublicRandom random(seed, label_stream);
  for (const std::int64_t row : std::span(order).first(static_cast<std::size_t>(count))) {
    const std::int64_t steps = wrong == wrong_next ? 1 : 1 + random.below(classes - 1);
    labels[row] = (labels[row] + steps) % classes;
    changed[row] = 1;
  }
  return noisy;
}

std::int64_t rows_in_both(const Dataset& clean, const Dataset& data) {
  std::unordered_set<std::string_view> known;
  for (std::int64_t row = 0; row < clean.size(); ++row) known.insert(row_bytes(clean.inputs, row));
  std::unordered_set<std::string_view> both;
  for (std::int64_t row = 0; row < data.size(); ++row) {
    const std::string_view bytes = row_bytes(data.inputs, row);
    if (known.contains(bytes)) both.insert(bytes);
  }
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < clean.size(); ++row)
    count += both.contains(row_bytes(clean.inputs, row)) ? 1 : 0;
  return count;
}

}  // namespace sotto::reweight
