#include "nn/layers/embedding_bag.h"

#include <algorithm>
#include <limits>

#include "autograd/ops.h"
#include "kernels/functors/functors.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/layers/dense_layers.h"

namespace sotto::nn {

namespace {

// The options with a padding row counted from the start of the table.
BagOptions counted(const BagOptions& options, const Var& table) {
  check(table.rank() == 2, "embedding_bag: table {} is not a matrix", table.shape());
  return {.mode = options.mode,
          .padding = padding_row("embedding_bag", options.padding, table.shape()[0])};
}

// Bags padded to one size; a padding or excluded id is an empty place.
struct Bags {
  Var ids;        // [n, size]; row 0 of the table where the place is empty
  Var places;     // [n, size, 1], f32 or f64: 1 where there is an id, 0 where the place is empty
  Tensor counts;  // [n, 1], ids in each bag
};

Bags bags_of(const Var& table, std::vector<std::int64_t> ids, const std::vector<bool>& empty,
             std::int64_t n, std::int64_t size) {
  Tape& tape = table.tape();
  std::vector<double> places(ids.size()), counts(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    places[i] = empty[i] ? 0 : 1;
    counts[i / static_cast<std::size_t>(size)] += places[i];
    if (empty[i]) ids[i] = 0;
  }
  const Tensor there = to_dtype(Tensor::from(places, {n, size, 1}), table.dtype());
  return {tape.input(Tensor::from(ids, {n, size})), tape.input(there),
          to_dtype(Tensor::from(counts, {n, 1}), table.dtype())};
}

Var reduced(const Var& table, const Bags& bags, const std::optional<Var>& weights,
            const BagOptions& options) {
  check(!weights || options.mode == BagMode::sum, "embedding_bag: weights are for sums only");
  Tape& tape = bags.ids.tape();
  const Var zero = tape.constant(zeros({}, table.dtype()));
  const Var rows = embedding(table, bags.ids);
  if (options.mode == BagMode::max) {
    if (bags.ids.shape()[1] == 0) return sum(rows, {1});
    const double min = -std::numeric_limits<double>::infinity();
    const Var y = max(where(bags.places, rows, tape.constant(full({}, min, table.dtype()))), 1);
    return where(tape.input(bags.counts), y, zero);
  }
  // Empty places hold row 0 and another bag's weight: mask both, so that neither's NaN can pass.
  Var found = where(bags.places, rows, zero);
  if (weights) found = mul(found, where(bags.places, unsqueeze(*weights, -1), zero));
  const Var total = sum(found, {1});
  if (options.mode == BagMode::sum) return total;
  const Tensor divisor =
      binary(binary_index<functors::Maximum>, bags.counts, full({}, 1, table.dtype()));
  return div(total, tape.input(divisor));
}

}  // namespace

Var embedding_bag(const Var& table, const Var& ids, const std::optional<Var>& weights,
                  const BagOptions& given) {
  const BagOptions options = counted(given, table);
  check(ids.rank() == 2 && ids.dtype() == Dtype::i64, "embedding_bag: ids {} of shape {}",
        name(ids.dtype()), ids.shape());
  check(!weights || weights->shape() == ids.shape(), "embedding_bag: weights {} for ids {}",
        weights ? weights->shape() : Shape{}, ids.shape());
  check(ids.samples() == SampleAxis(0),
        "embedding_bag: the first axis of ids {} is not the samples'", ids.shape());
  const std::vector<std::int64_t> flat = ids.value().to_vector<std::int64_t>();
  std::vector<bool> empty;
  for (const std::int64_t id : flat) empty.push_back(options.padding && id == *options.padding);
  const Shape shape = ids.shape();
  return reduced(table, bags_of(table, flat, empty, shape[0], shape[1]), weights, options);
}

namespace {

// Returns where each bag begins, and the end of the last one.
std::vector<std::int64_t> limits_of(const Tensor& ids, const Tensor& offsets) {
  check(ids.rank() == 1 && offsets.rank() == 1 && ids.dtype() == Dtype::i64 &&
            offsets.dtype() == Dtype::i64,
        "embedding_bag: ids {} and offsets {}", ids.shape(), offsets.shape());
  std::vector<std::int64_t> limits = offsets.to_vector<std::int64_t>();
  check(limits.empty() ? ids.numel() == 0 : limits[0] == 0,
        "embedding_bag: offsets do not begin with 0");
  limits.push_back(ids.numel());
  check(std::is_sorted(limits.begin(), limits.end()),
        "embedding_bag: offsets fall, or pass the end of {} ids", ids.numel());
  return limits;
}

Var bags_at(Tape& tape, const Var& table, const Tensor& ids, const Tensor& offsets,
            const std::optional<Var>& weights, const BagOptions& options) {
  const std::vector<std::int64_t> limits = limits_of(ids, offsets),
                                  flat = ids.to_vector<std::int64_t>();
  const auto n = static_cast<std::int64_t>(limits.size()) - 1;
  std::int64_t size = 0;
  for (std::int64_t b = 0; b < n; ++b) {
    size = std::max(size,
                    limits[static_cast<std::size_t>(b) + 1] - limits[static_cast<std::size_t>(b)]);
  }
  std::vector<std::int64_t> padded, place;
  std::vector<bool> empty;
  for (std::int64_t b = 0; b < n; ++b) {
    for (std::int64_t k = 0; k < size; ++k) {
      const std::int64_t at = limits[static_cast<std::size_t>(b)] + k;
      const bool there = at < limits[static_cast<std::size_t>(b) + 1];
      place.push_back(there ? at : 0);
      padded.push_back(there ? flat[static_cast<std::size_t>(at)] : 0);
      empty.push_back(!there || (options.padding && padded.back() == *options.padding));
    }
  }
  const Bags bags = bags_of(table, padded, empty, n, size);
  if (!weights) return reduced(table, bags, std::nullopt, options);
  check(weights->shape() == ids.shape(), "embedding_bag: weights {} for ids {}", weights->shape(),
        ids.shape());
  // Weights are looked up by the same places as ids.
  const Var own =
      embedding(reshape(*weights, {ids.numel(), 1}), tape.input(Tensor::from(place, {n, size})));
  return reduced(table, bags, squeeze(own, 2), options);
}

}  // namespace

Var embedding_bag(const Var& table, const Tensor& ids, const Tensor& offsets,
                  const std::optional<Var>& weights, const BagOptions& options) {
  return bags_at(table.tape(), table, ids, offsets, weights, counted(options, table));
}

EmbeddingBag::EmbeddingBag(std::int64_t rows, std::int64_t features, const BagOptions& options)
    : weight(std::make_unique<Parameter>(
          Embedding(rows, features, {.padding = padding_row("EmbeddingBag", options.padding, rows)})
              .weight->value)),
      options_(options) {}

Var EmbeddingBag::forward(const Var& ids, const std::optional<Var>& weights) {
  return embedding_bag(ids.tape().use(*weight), ids, weights, options_);
}

Var EmbeddingBag::forward(Tape& tape, const Tensor& ids, const Tensor& offsets,
                          const std::optional<Var>& weights) {
  return embedding_bag(tape.use(*weight), ids, offsets, weights, options_);
}

void EmbeddingBag::visit(const Visitor& visitor) { visitor("weight", weight); }

}  // namespace sotto::nn
