// A sample's part of a clipped sum depends on that sample only: the number of other samples in a
// physical batch, their sequence lengths, and the choices made for them must not show in it.
#include <cmath>

#include "autograd/ops.h"
#include "autograd/per_sample/grouping.h"
#include "core/random/philox.h"
#include "dp/clipping/clipper.h"
#include "dp/clipping/clipper_state.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/layers/embedding_bag.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

// Samples that are alike, so that their rounding adds up, and one with a negligible gradient.
constexpr std::int64_t others = 128, width = 16;

struct Clipped {
  std::vector<double> sum;
  double factor;  // of the first sample
};

Clipped clipped(Clipper& clipper, Tape& tape, const Var& loss) {
  clipper.add(tape, loss);
  return {to_dtype(clipper.clipped_sums()[0].second, Dtype::f64).to_vector<double>(),
          clipper.statistics().factors[0][0]};
}

double distance(const Clipped& a, const Clipped& b) {
  double square = 0;
  for (std::size_t i = 0; i < a.sum.size(); ++i)
    square += (a.sum[i] - b.sum[i]) * (a.sum[i] - b.sum[i]);
  return std::sqrt(square);
}

Tensor normal_values(PublicRandom& random, const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (float& value : values) value = static_cast<float>(random.normal());
  return Tensor::from(values, shape);
}

// Inputs [positions, width] about `mean`, and output gradients that cancel over positions.
struct Sample {
  Tensor x, dy;
};
Sample cancelling(std::int64_t positions, double mean) {
  PublicRandom random(11);
  const Shape shape{positions, width};
  const Tensor grads = normal_values(random, shape);
  return {add(normal_values(random, shape), full({}, mean)),
          sub(grads, scale(sum(grads, {0}), 1.0 / static_cast<double>(positions)))};
}

// All other samples and, if `with`, the one of length `longest`.
Clipped linear_sum(const Sample& like, std::int64_t longest, bool with, Clipper& clipper,
                   Parameter& w) {
  const std::int64_t positions = like.x.size(0),
                     t = with ? std::max(longest, positions) : positions;
  const std::int64_t n = others + (with ? 1 : 0);
  const Tensor x = zeros({n, t, width}), dy = zeros({n, t, width});
  for (std::int64_t k = 0; k < others; ++k) {
    copy_into(like.x, x.select(0, k).slice(0, 0, positions));
    copy_into(like.dy, dy.select(0, k).slice(0, 0, positions));
  }
  if (with) {
    copy_into(full({}, 1e-6), x.select(0, others).slice(0, 0, longest));
    copy_into(full({}, 1e-6), dy.select(0, others).slice(0, 0, longest));
  }
  Tape tape({.private_data = true});
  const Var y = linear(tape.input(x), tape.use(w)) * tape.input(dy);
  return clipped(clipper, tape, sum_per_sample(y));
}

TEST_CASE("materializing gradients does not show in the clip factors of others") {
  constexpr std::int64_t positions = 64;
  for (const double mean : {0.0, 100.0, 1000.0}) {
    const Sample like = cancelling(positions, mean);
    const auto sum_of = [&](bool with, std::size_t rows) {
      Parameter w(zeros({width, width}));
      Clipper clipper(flat_group({&w}, 1),
                      {.per_sample_grad_budget = rows * width * width * sizeof(float)});
      return linear_sum(like, positions, with, clipper, w);
    };
    const Clipped with = sum_of(true, others), without = sum_of(false, others);
    INFO("mean " << mean << ", factors " << with.factor << ", " << without.factor);
    CHECK(distance(with, without) < 1e-3 + 2e-5 * mean);
    CHECK(with.factor == Approx(without.factor).epsilon(1e-7 * (1 + mean)));
  }
}

TEST_CASE("with a maximum physical batch nothing at all changes for others") {
  const Sample like = cancelling(64, 1000);
  const auto sum_of = [&](bool with, std::int64_t largest) {
    Parameter w(zeros({width, width}));
    Clipper clipper(flat_group({&w}, 1),
                    {.per_sample_grad_budget = others * width * width * sizeof(float)});
    clipper.state().set_max_physical_batch(largest);
    return linear_sum(like, 64, with, clipper, w).factor;
  };
  CHECK(sum_of(true, others + 1) == sum_of(false, others + 1));
  // per-sample gradients are materialized for one of them
  CHECK(sum_of(true, 0) != sum_of(false, 0));
  CHECK(throws([&] { sum_of(true, -1); }, "physical batches of at most -1 units"));
}

TEST_CASE("the longest sequence does not show in the clip factors of others") {
  for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
    for (const double mean : {0.0, 100.0, 1000.0}) {
      const Sample like = cancelling(8, mean);
      for (const std::int64_t longest : {8, 60, 1000}) {
        const auto sum_of = [&](bool with) {
          Parameter w(zeros({width, width}));
          Clipper clipper(flat_group({&w}, 1), {}, passes);
          return linear_sum(like, longest, with, clipper, w);
        };
        INFO("mean " << mean << ", longest " << longest);
        CHECK(distance(sum_of(true), sum_of(false)) < 1e-3 + 2e-5 * mean);
      }
    }
  }
}

TEST_CASE("a user of two rows does not show in the clip factors of users of one") {
  for (const double far : {0.0, 1e3, 1e7}) {
    // Images are zero on one side, where output gradients are large: far larger than their
    // products.
    PublicRandom random(12);
    const Tensor image = normal_values(random, {3, 8, 8}), grads = normal_values(random, {4, 6, 6}),
                 kernel = normal_values(random, {4, 3, 3, 3});
    copy_into(zeros({}), image.slice(2, 3, 8));
    axpby(far, normal_values(random, {4, 6, 3}), 1, grads.slice(2, 3, 6));
    const auto sum_of = [&](std::int64_t rows) {
      const Tensor x = zeros({others + rows, 3, 8, 8}), dy = zeros({others + rows, 4, 6, 6});
      copy_into(image, x.slice(0, 0, others));
      copy_into(grads, dy.slice(0, 0, others));
      Grouping grouping{.unit_of_row = {}, .units = others + 1};
      for (std::int64_t n = 0; n < others; ++n) grouping.unit_of_row.push_back(n);
      grouping.unit_of_row.insert(grouping.unit_of_row.end(), static_cast<std::size_t>(rows),
                                  others);
      Parameter w(clone(kernel));
      Clipper clipper(flat_group({&w}, 1));
      Tape tape({.private_data = true});
      const Var y = conv(tape.input(x), tape.use(w), std::nullopt, {}) * tape.input(dy);
      clipper.add(tape, sum_per_sample(y), rows == 1 ? nullptr : &grouping);
      return Clipped{to_dtype(clipper.clipped_sums()[0].second, Dtype::f64).to_vector<double>(),
                     clipper.statistics().factors[0][0]};
    };
    const Clipped one = sum_of(1), two = sum_of(2);
    INFO("slopes of " << far << ", factors " << one.factor << ", " << two.factor);
    CHECK(two.factor == Approx(one.factor).epsilon(1e-6));
    CHECK(distance(one, two) < 1e-3);
  }
}

TEST_CASE("the longest bag does not show in the clip factors of others") {
  constexpr std::int64_t size = 8, rows = 50;
  for (const auto mode : {nn::BagMode::sum, nn::BagMode::mean}) {
    const auto sum_of = [&](std::int64_t longest) {
      std::vector<std::int64_t> ids, offsets;
      for (std::int64_t k = 0; k < others; ++k) {
        offsets.push_back(std::ssize(ids));
        for (std::int64_t t = 0; t < size; ++t) ids.push_back(t);
      }
      offsets.push_back(std::ssize(ids));
      for (std::int64_t t = 0; t < longest; ++t) ids.push_back(t % rows);
      const Tensor dy = full({others + 1, width}, 1);
      copy_into(full({}, 1e-9), dy.select(0, others));
      Parameter table(zeros({rows, width}));
      Clipper clipper(flat_group({&table}, 1), {});
      Tape tape({.private_data = true});
      const Var y =
          nn::embedding_bag(tape.use(table), Tensor::from(ids, {std::ssize(ids)}),
                            Tensor::from(offsets, {others + 1}), std::nullopt, {.mode = mode});
      return clipped(clipper, tape, sum_per_sample(y * tape.input(dy)));
    };
    const Clipped none = sum_of(0), many = sum_of(5000);
    CHECK(many.factor == none.factor);
    CHECK(distance(many, none) < 2e-4);
  }
}

}  // namespace
}  // namespace sotto
