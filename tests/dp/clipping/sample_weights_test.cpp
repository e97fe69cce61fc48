// Weights of samples after clipping, and the numbers that they are computed from.
#include <cmath>
#include <limits>

#include "autograd/ops.h"
#include "autograd/per_sample/grouping.h"
#include "autograd/segment.h"
#include "autograd/sink.h"
#include "core/random/philox.h"
#include "dp/clipping/clipper.h"
#include "dp/clipping/sample_values.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/optim/optimizer.h"
#include "tests/support/catch.h"
#include "tests/support/engine_training.h"
#include "tests/support/op_cases.h"

namespace sotto {
namespace {

constexpr double bound = 0.3;

// Rows of a small network with a direction, and weights from the products with it.
struct Gated {
  nn::Sequential model;
  Tensor x, labels;
  Gradients direction;
  std::vector<Parameter*> first, second;

  explicit Gated(std::uint64_t seed, std::int64_t rows) {
    PublicRandom random(seed);
    nn::manual_seed(seed);
    model.add(nn::Linear(3, 4));
    model.add(nn::Tanh());
    model.add(nn::Linear(4, 3));
    model.to(Dtype::f64);
    x = scale(uniform_values(random, {rows, 3}), 3);
    labels = random_ids(random, {rows}, 3);
    for (Parameter* parameter : model.parameters())
      direction.emplace_back(parameter, uniform_values(random, parameter->value.shape()));
    first = model[0].parameters();
    second = model[2].parameters();
  }
  std::vector<ClipGroup> groups() { return {{first, bound}, {second, 2 * bound}}; }
  Var losses(Tape& tape, const std::vector<std::int64_t>& rows) {
    const Tensor ids = Tensor::from(rows, {std::ssize(rows)});
    return cross_entropy(model(tape.input(gather(x, ids, 0))), gather(labels, ids, 0));
  }
  // A smooth gate, from 0 to 1.
  Var weights(const Var& losses) { return sigmoid(5 * gradient_products(losses, direction)); }
};

std::vector<double> sums_of(Clipper& clipper) {
  std::vector<double> all;
  for (const auto& [parameter, sum] : clipper.clipped_sums()) {
    for (const double value : to_dtype(sum, Dtype::f64).to_vector<double>()) all.push_back(value);
  }
  return all;
}

// The clipped sum of these rows, with weights in the first group.
std::vector<double> weighted_sum(Gated& gated, const std::vector<std::int64_t>& rows,
                                 ClipPasses passes, std::size_t at_once = 3) {
  Clipper clipper(gated.groups(), {}, passes);
  for (std::size_t at = 0; at < rows.size(); at += at_once) {
    const auto end = std::min(rows.size(), at + at_once);
    Tape tape({.private_data = true});
    const Var losses = gated.losses(tape, {rows.begin() + static_cast<std::ptrdiff_t>(at),
                                           rows.begin() + static_cast<std::ptrdiff_t>(end)});
    tape.set_sample_weights(gated.weights(losses), {gated.first.begin(), gated.first.end()});
    clipper.add(tape, losses);
  }
  return sums_of(clipper);
}

double norm_of_rows(const PerSampleGradSink& sink, const std::vector<Parameter*>& parameters) {
  double square = 0;
  for (const Parameter* parameter : parameters) {
    const Tensor& row = sink.rows(*parameter);
    square += sum(mul(row, row)).item();
  }
  return std::sqrt(square);
}

TEST_CASE("weights multiply the clipped gradients of chosen groups, as for each sample alone") {
  for (const std::uint64_t seed : {1, 2, 3}) {
    Gated gated(seed, 8);
    std::map<const Parameter*, Tensor> expected;
    for (Parameter* parameter : gated.model.parameters())
      expected[parameter] = zeros_like(parameter->value);
    for (std::int64_t row = 0; row < 8; ++row) {
      Tape tape;
      const Var losses = gated.losses(tape, {row});
      const double weight = gated.weights(losses).value().item();
      PerSampleGradSink sink;
      tape.backward(losses, sink);
      const auto add = [&](const std::vector<Parameter*>& parameters, double limit, double times) {
        const double factor = std::min(1.0, limit / norm_of_rows(sink, parameters));
        for (const Parameter* parameter : parameters)
          axpby(times * factor, sink.rows(*parameter)[0], 1, expected[parameter]);
      };
      add(gated.first, bound, weight);
      add(gated.second, 2 * bound, 1);
    }
    for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
      const std::vector<std::int64_t> rows{0, 1, 2, 3, 4, 5, 6, 7};
      Clipper clipper(gated.groups(), {}, passes);
      Tape tape({.private_data = true});
      const Var losses = gated.losses(tape, rows);
      tape.set_sample_weights(gated.weights(losses), {gated.first.begin(), gated.first.end()});
      clipper.add(tape, losses);
      for (const auto& [parameter, sum_of] : clipper.clipped_sums()) {
        const auto got = sum_of.to_vector<double>();
        const auto wanted = expected[parameter].to_vector<double>();
        for (std::size_t i = 0; i < got.size(); ++i)
          CHECK(got[i] == Approx(wanted[i]).epsilon(1e-9).margin(1e-12));
      }
      // Statistics are those without weights.
      CHECK(clipper.statistics().factors[0][0] > 0);
    }
  }
}

TEST_CASE("one unit more or less moves the weighted sum by at most the sensitivity") {
  for (const std::uint64_t seed : {4, 5, 6}) {
    Gated gated(seed, 6);
    for (double& value : std::span(gated.x.data<double>(), 3)) value = NAN;  // row 0
    Clipper clipper(gated.groups());
    for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
      const std::vector<double> all = weighted_sum(gated, {0, 1, 2, 3, 4, 5}, passes);
      for (std::int64_t out = 0; out < 6; ++out) {
        std::vector<std::int64_t> others;
        for (std::int64_t row = 0; row < 6; ++row) {
          if (row != out) others.push_back(row);
        }
        const std::vector<double> without = weighted_sum(gated, others, passes);
        double square = 0;
        for (std::size_t i = 0; i < all.size(); ++i)
          square += (all[i] - without[i]) * (all[i] - without[i]);
        CHECK(std::sqrt(square) <= clipper.sensitivity());
        if (out == 0) CHECK(square <= 1e-24);  // but for the order of the sum
      }
    }
  }
}

// The joint release of a model and a weigher whose weights are in the loss, for units of several
// rows.
struct Joint {
  Gated gated{12, 9};
  Parameter slope{Tensor::from(std::vector<double>{-0.7, 0.4}, {2})};
  std::vector<std::int64_t> unit_of_row{0, 0, 1, 2, 2, 2, 3, 4, 4};

  std::vector<ClipGroup> groups() {
    std::vector<ClipGroup> all = gated.groups();
    all.push_back({{&slope}, bound / 2});
    return all;
  }
  // The sums of all units but one.
  std::vector<double> sums_without(std::int64_t out, ClipPasses passes) {
    std::vector<std::int64_t> rows;
    Grouping grouping{.unit_of_row = {}, .units = out < 0 ? 5 : 4};
    for (std::int64_t row = 0; row < 9; ++row) {
      const std::int64_t unit = unit_of_row[static_cast<std::size_t>(row)];
      if (unit == out) continue;
      rows.push_back(row);
      grouping.unit_of_row.push_back(out >= 0 && unit > out ? unit - 1 : unit);
    }
    Clipper clipper(groups(), {}, passes);
    Tape tape({.private_data = true});
    const Var losses = gated.losses(tape, rows);
    const Var known = unsqueeze(detach(losses), 1), one = 0 * known + 1.0;
    const Var weights = sigmoid(sum(tape.use(slope) * concat({known, one}, 1), {1}));
    const Var slopes = gradient_products(losses, gated.direction);
    clipper.add(tape, detach(weights) * losses - slopes * weights, &grouping);
    return sums_of(clipper);
  }
};

TEST_CASE("a unit of several rows moves the release of both levels by at most the sensitivity") {
  Joint joint;
  for (double& value : std::span(joint.gated.x.data<double>(), 3)) value = NAN;  // row 0, of unit 0
  const double sensitivity = Clipper(joint.groups()).sensitivity();
  for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
    const std::vector<double> all = joint.sums_without(-1, passes);
    for (std::int64_t out = 0; out < 5; ++out) {
      const std::vector<double> without = joint.sums_without(out, passes);
      double square = 0;
      for (std::size_t i = 0; i < all.size(); ++i)
        square += (all[i] - without[i]) * (all[i] - without[i]);
      CHECK(std::sqrt(square) <= sensitivity);
      CHECK((square > 1e-6) == (out != 0));  // a loss that is no number leaves its unit out
    }
  }
}

// The clipped sum of all rows, each with its weight.
std::vector<double> sum_with(Gated& gated, const std::vector<double>& weights) {
  Clipper clipper(gated.groups());
  Tape tape({.private_data = true});
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < std::ssize(weights); ++row) rows.push_back(row);
  const Var losses = gated.losses(tape, rows);
  tape.set_sample_weights(tape.input(Tensor::from(weights, {std::ssize(weights)})));
  clipper.add(tape, losses);
  return sums_of(clipper);
}

TEST_CASE("weights of 0 and NaN leave a unit out, whatever its gradient") {
  Gated gated(7, 4), fewer(7, 4);
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  gated.x.data<double>()[0] = std::numeric_limits<double>::infinity();
  const std::vector<double> got = sum_with(gated, {0, 1, nan, 0.5});
  const std::vector<double> same = sum_with(fewer, {0, 1, 0, 0.5});
  CHECK(got == same);
  for (const double value : got) CHECK(std::isfinite(value));
  CHECK(sum_with(gated, {0, 0, nan, 0}) == std::vector<double>(got.size(), 0.0));
}

TEST_CASE("weights outside of [0, 1], or for a part of a group, are errors") {
  Gated gated(8, 2);
  CHECK_THROWS_AS(sum_with(gated, {1, 1.01}), std::invalid_argument);
  CHECK_THROWS_AS(sum_with(gated, {-0.01, 1}), std::invalid_argument);
  CHECK_THROWS_AS(sum_with(gated, {std::numeric_limits<double>::infinity(), 1}),
                  std::invalid_argument);
  const auto add = [&](const std::vector<const Parameter*>& parameters, const Grouping* grouping) {
    Clipper clipper(gated.groups());
    Tape tape({.private_data = true});
    const Var losses = gated.losses(tape, {0, 1});
    tape.set_sample_weights(detach(losses) * 0.0, parameters);
    clipper.add(tape, losses, grouping);
  };
  CHECK_NOTHROW(add({gated.second[0], gated.second[1]}, nullptr));
  CHECK_THROWS_AS(add({gated.first[0]}, nullptr), std::invalid_argument);
  Parameter stranger(zeros({2}));
  CHECK_THROWS_AS(add({&stranger}, nullptr), std::invalid_argument);
  const Grouping pair{.unit_of_row = {0, 0}, .units = 1}, one{.unit_of_row = {-1, 0}, .units = 1};
  CHECK_THROWS_AS(add({}, &pair), std::invalid_argument);
  CHECK_NOTHROW(add({}, &one));
}

TEST_CASE("only a private tape takes weights, once, one for each sample") {
  Gated gated(9, 2);
  Tape ordinary;
  const Var losses = gated.losses(ordinary, {0, 1});
  CHECK_THROWS_AS(ordinary.set_sample_weights(losses), std::invalid_argument);
  Tape tape({.private_data = true});
  const Var own = gated.losses(tape, {0, 1});
  CHECK_THROWS_AS(tape.set_sample_weights(losses), std::invalid_argument);
  CHECK_THROWS_AS(tape.set_sample_weights(unsqueeze(own, 1)), std::invalid_argument);
  CHECK_THROWS_AS(tape.set_sample_weights(tape.constant(zeros({2}))), std::invalid_argument);
  tape.set_sample_weights(own);
  CHECK_THROWS_AS(tape.set_sample_weights(own), std::invalid_argument);
  tape.clear();
  CHECK(!tape.sample_weights().values.defined());
}

TEST_CASE("products and clip factors of gradients are those of each sample alone") {
  Gated gated(10, 5);
  const ClipGroup group{gated.first, bound};
  Tape tape({.private_data = true});
  const Var losses = gated.losses(tape, {0, 1, 2, 3, 4});
  const Var products = gradient_products(losses, gated.direction);
  const Var factors = clip_factors(losses, group);
  CHECK(!products.needs_grad());
  CHECK(products.samples() == SampleAxis(0));
  for (std::int64_t row = 0; row < 5; ++row) {
    Tape alone;
    const Var loss = gated.losses(alone, {row});
    PerSampleGradSink sink;
    alone.backward(loss, sink);
    double expected = 0;
    for (const auto& [parameter, v] : gated.direction)
      expected += sum(mul(sink.rows(*parameter)[0], v)).item();
    CHECK(products.value().at({row}) == Approx(expected).epsilon(1e-12));
    CHECK(factors.value().at({row}) ==
          Approx(std::min(1.0, bound / norm_of_rows(sink, gated.first))).epsilon(1e-9));
  }
  CHECK_THROWS_AS(gradient_products(mean(losses, {}, false), gated.direction),
                  std::invalid_argument);
}

TEST_CASE("a gated training spends what a plain one does, in physical batches and two passes") {
  for (const std::int64_t rows : {7, 64}) {
    Training plain, gated;
    const EngineOptions options{.noise_multiplier = 1,
                                .steps = steps,
                                .logical_batch = 30,
                                .memory = {.physical_batch = rows}};
    Engine plain_engine = plain.engine(Ledger(), options), engine = gated.engine(Ledger(), options);
    Gradients v;
    for (Parameter* parameter : gated.model.parameters())
      v.emplace_back(parameter, full(parameter->value.shape(), 0.1));
    double counted = 0, all = 0;
    const auto loss = [&](Tape& tape, std::span<const std::int64_t> batch) {
      const Var losses = gated.loss()(tape, batch);
      const Var gate = greater(gradient_products(losses, v), 0 * detach(losses));
      if (gate.value().numel() > 0) counted += sum(gate.value()).item();
      all += static_cast<double>(batch.size());
      tape.set_sample_weights(gate);
      return losses;
    };
    plain.step(plain_engine, 3);
    for (int k = 0; k < 3; ++k) engine.step(loss);
    CHECK(engine.epsilon() == plain_engine.epsilon());
    CHECK(engine.clipper().sensitivity() == plain_engine.clipper().sensitivity());
    CHECK(counted > 0);
    CHECK(counted < all);
  }
}

TEST_CASE("a detached value keeps its samples and passes no gradient on") {
  Gated gated(11, 3);
  Tape tape;
  const Var losses = gated.losses(tape, {0, 1, 2});
  const Var known = detach(losses);
  CHECK(known.value().to_vector<double>() == losses.value().to_vector<double>());
  CHECK(known.samples() == losses.samples());
  CHECK(!known.needs_grad());
  CHECK(detach(tape.use(*gated.first[0])).samples().is_shared());
}

}  // namespace
}  // namespace sotto
