// Attention's weights and the gradients of scores, against their definitions in double, on every
// engine.
// File tags: [gpu][optimised][simd]
#include <limits>

#include "core/threads/parallel.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/kernel_cases.h"

using namespace sotto;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// An AttentionMask with its masks, which broadcast to the scores.
struct Case {
  Shape shape;
  AttentionMask rule;
  std::vector<Tensor> masks = {};

  AttentionMask with_masks(std::vector<View>& views) const {
    for (const Tensor& mask : masks) views.push_back(mask.expand(shape).view());
    AttentionMask all = rule;
    all.masks = views;
    return all;
  }
};

bool one_in(Random& random, std::int64_t count) { return between(random, 1, count) == 1; }

Tensor random_mask(Random& random, Shape shape, Dtype dtype) {
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (one_in(random, 3)) shape[axis] = 1;
  }
  if (one_in(random, 2)) {
    const Tensor hides =
        fill(Tensor::empty_ordered(shape, random_order(random, 3), Dtype::f64, cpu),
             [&] { return one_in(random, 3) ? 1.0 : 0.0; });
    return to_dtype(hides, Dtype::i64);
  }
  const Tensor added = random_tensor(random, shape, dtype);
  if (one_in(random, 2)) set_value(added, 0, -infinity);
  return added;
}

Case random_case(Random& random, Dtype dtype) {
  constexpr std::int64_t keys[] = {1, 4, 7, 24, 63, 300, 512};
  Case c{.shape = {between(random, 1, 3), between(random, 1, 6), keys[between(random, 0, 6)]},
         .rule = {.scale = one_in(random, 2) ? 1.7 : 0.25,
                  .total = one_in(random, 2) ? 1 : 1.25,
                  .causal = one_in(random, 2),
                  .first_query = between(random, 0, 300),
                  .always_visible = one_in(random, 2) ? between(random, 0, 5) : 0,
                  .masks = {}}};
  if (one_in(random, 2)) c.rule.first_query = between(random, 0, 3);
  for (std::int64_t masks = between(random, 0, max_score_masks); masks > 0; --masks)
    c.masks.push_back(random_mask(random, c.shape, dtype));
  return c;
}

// The masked scores of one row.
std::vector<double> masked_row(const Case& c, const std::vector<double>& x, std::int64_t row) {
  const std::int64_t queries = c.shape[1], keys = c.shape[2];
  const auto first = static_cast<std::size_t>(row * keys);
  std::vector<double> scores(x.begin() + static_cast<std::ptrdiff_t>(first),
                             x.begin() + static_cast<std::ptrdiff_t>(first) + keys);
  for (double& score : scores) score *= c.rule.scale;
  for (const Tensor& mask : c.masks) {
    const std::vector<double> m = values(mask.expand(c.shape));
    for (std::size_t s = 0; s < scores.size(); ++s) {
      const double here = m[first + s];
      scores[s] = mask.dtype() != Dtype::i64 ? scores[s] + here : here != 0 ? -infinity : scores[s];
    }
  }
  const std::int64_t query = c.rule.first_query + row % queries;
  for (std::int64_t s = 0; s < keys; ++s) {
    if (c.rule.causal && s > query + c.rule.always_visible)
      scores[static_cast<std::size_t>(s)] = -infinity;
  }
  return scores;
}

std::vector<double> weights_by_definition(const Case& c, const std::vector<double>& x) {
  std::vector<double> weights;
  for (std::int64_t row = 0; row < c.shape[0] * c.shape[1]; ++row) {
    double sum = 0;
    const std::vector<double> scores = masked_row(c, x, row);
    for (const double score : scores) sum += std::exp(score);
    for (const double score : scores)
      weights.push_back(sum == 0 ? 0 : c.rule.total * std::exp(score) / sum);
  }
  return weights;
}

// The gradients of scores by the definition, for weights that were rounded to 16 bits or not.
std::vector<double> slopes_by_definition(const Case& c, const Tensor& weights,
                                         const std::vector<double>& dw) {
  const bool rounded = weights.dtype() != arithmetic_type(weights.dtype());
  const std::vector<double> w = values(weights);
  const auto keys = static_cast<std::size_t>(c.shape[2]);
  std::vector<double> grads(w.size());
  for (std::size_t row = 0; row < w.size(); row += keys) {
    double sum = 0, all = 0;
    for (std::size_t s = row; s < row + keys; ++s) sum += w[s] * dw[s], all += w[s];
    const double mean = all == 0 ? 0 : sum / (rounded ? all : c.rule.total);
    for (std::size_t s = row; s < row + keys; ++s) grads[s] = c.rule.scale * w[s] * (dw[s] - mean);
  }
  return grads;
}

// Computes the weights in place of the scores if these have their type.
Tensor weights_of(const Case& c, const Tensor& x, Dtype dtype) {
  std::vector<View> views;
  const Tensor scores = clone(x), y = dtype == x.dtype() ? scores : unwritten(c.shape, dtype);
  backend(cpu).masked_softmax(c.with_masks(views), scores.view(), y.view());
  return y;
}
Tensor weights_of(const Case& c, const Tensor& x) { return weights_of(c, x, x.dtype()); }

// Computes the gradients in place of the weights, in place of the incoming gradients, or in a new
// tensor.
Tensor slopes_of(const Case& c, const Tensor& weights, const Tensor& grads, std::int64_t place) {
  const Tensor w = clone(weights), dw = clone(grads);
  const bool one_type = w.dtype() == dw.dtype();
  const Tensor dx = place == 0 ? w : place == 1 && one_type ? dw : unwritten(c.shape, w.dtype());
  backend(cpu).score_weights_grad(c.rule, w.view(), dw.view(), dx.view());
  return dx;
}

Tensor row_of(const std::vector<double>& scores) {
  return to_dtype(Tensor::from(scores, {1, 1, static_cast<std::int64_t>(scores.size())}),
                  Dtype::f32);
}

}  // namespace

TEST_CASE("weights of scores and their gradients agree with their definitions", "[gate]") {
  for_each_engine([](Backend&) {
    Random random(71);
    for (int round = 0; round < 120; ++round) {
      const Dtype dtype = round % 2 == 0 ? Dtype::f32 : Dtype::f64;
      const Case c = random_case(random, dtype);
      const Tensor x = random_tensor(random, c.shape, {0, 1, 2}, dtype);
      const Tensor grads = random_tensor(random, c.shape, {0, 1, 2}, dtype);
      for (const Dtype rounded : {dtype, Dtype::f16, Dtype::bf16}) {
        if (arithmetic_type(rounded) != dtype) continue;
        const Tensor weights = weights_of(c, x, rounded);
        check_close(weights, weights_by_definition(c, values(x)));
        CHECK(same_bits(weights, weights_of(c, x, rounded)));
        const std::vector<double> expected = slopes_by_definition(c, weights, values(grads));
        for (std::int64_t place = 0; place < 3; ++place)
          check_close(slopes_of(c, weights, grads, place), expected);
      }
    }
  });
}

TEST_CASE(
    "a gradient that is equal for all weights gives none for scores, even if weights were "
    "rounded") {
  for_each_engine([](Backend&) {
    // 1.1 has no finite binary expansion.
    const Case one{.shape = {1, 1, 1}, .rule = {.total = 1.1, .masks = {}}};
    for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
      const Tensor weights = weights_of(one, row_of({3}), dtype);
      CHECK(values(slopes_of(one, weights, row_of({1e3}), 0))[0] == Approx(0).margin(1e-3));
    }
    const Tensor hidden = zeros({1, 1, 3}, Dtype::bf16);
    const Case all_hidden{.shape = {1, 1, 3}, .rule = {.causal = true, .masks = {}}};
    CHECK(values(slopes_of(all_hidden, hidden, row_of({1, 2, 3}), 2)) == std::vector<double>(3, 0));
  });
}

TEST_CASE("a query that sees no key has weights of zero, and one that sees a NaN has NaN") {
  const double nan = std::nan("");
  for_each_engine([&](Backend&) {
    const Tensor hides = Tensor::from(std::vector<std::int64_t>{1, 0, 1}, {1, 1, 3});
    const Case masked{.shape = {1, 1, 3}, .rule = {}, .masks = {hides}};
    CHECK(values(weights_of(masked, row_of({nan, 3, infinity}))) == std::vector<double>{0, 1, 0});
    CHECK(values(weights_of(masked, row_of({0, -infinity, 0}))) == std::vector<double>(3, 0));
    CHECK(std::isnan(values(weights_of(masked, row_of({0, nan, 0})))[1]));
    const Case causal{.shape = {1, 1, 3}, .rule = {.causal = true, .masks = {}}};
    CHECK(values(weights_of(causal, row_of({2, nan, nan}))) == std::vector<double>{1, 0, 0});
    CHECK(std::isnan(values(weights_of(causal, row_of({nan, 0, 0})))[0]));
    // Without masks such scores are an error, which must be visible.
    const Case plain{.shape = {1, 1, 3}, .rule = {}};
    for (const Tensor& scores : {row_of(std::vector<double>(3, -infinity)), row_of({0, nan, 0})}) {
      for (const double weight : values(weights_of(plain, scores))) CHECK(std::isnan(weight));
    }
  });
}

TEST_CASE("weights of scores do not depend on the number of threads") {
  Random random(72);
  const Case c{.shape = {3, 90, 200}, .rule = {.causal = true, .masks = {}}};
  const Tensor x = random_tensor(random, c.shape, {0, 1, 2}, Dtype::f32);
  const int before = thread_count();
  set_thread_count(1);
  const Tensor one = weights_of(c, x);
  set_thread_count(3);
  CHECK(same_bits(one, weights_of(c, x)));
  set_thread_count(before);
}
