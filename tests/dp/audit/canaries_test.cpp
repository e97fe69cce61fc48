// Canaries: their effect on losses, gradients and batches.
#include "dp/audit/canaries.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "autograd/sink.h"
#include "core/random/philox.h"
#include "core/random/secret_random.h"
#include "tests/support/catch.h"
#include "tests/support/dp_models.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

constexpr std::int64_t people = 6;

DiracCanaries all_in_or_out(nn::Sequential& model, std::int64_t count = 100) {
  return {model.parameters(),
          {.count = count, .population = people, .magnitude = 3, .seed = 1},
          SecretRandom::insecure_seeded(2)};
}

TEST_CASE("a canary's gradient is its magnitude in one element, another for each canary") {
  nn::Sequential model = small_network();
  const auto count = model.parameter_count();
  const DiracCanaries canaries = all_in_or_out(model, count);
  std::vector<std::int64_t> rows;
  for (std::int64_t k = 0; k < count; ++k) rows.push_back(people + k);
  PublicRandom random(3);
  const Batch batch = random_batch(count, random);
  Tape tape;
  PerSampleGradSink sink;
  const Var losses =
      canaries.losses(cross_entropy(model(tape.input(batch.images)), batch.targets), rows);
  const std::vector<double> values = canaries.values();
  for (std::int64_t k = 0; k < count; ++k) {
    const double loss = static_cast<double>(losses.value().to_vector<float>()[k]);
    CHECK(loss == Approx(3 * values[static_cast<std::size_t>(k)]));
  }
  tape.backward(losses, sink);
  std::vector<double> total(static_cast<std::size_t>(count), 0.0);
  for (std::int64_t k = 0; k < count; ++k) {
    Gradients own;
    for (const auto& [parameter, all] : sink.all()) own.emplace_back(parameter, all.select(0, k));
    const std::vector<double> elements = canaries.elements(own);
    CHECK(elements[static_cast<std::size_t>(k)] == 3);
    for (std::size_t i = 0; i < elements.size(); ++i) total[i] += std::abs(elements[i]);
  }
  CHECK(total == std::vector<double>(static_cast<std::size_t>(count), 3.0));
}

TEST_CASE("rows that are no canaries keep their losses and gradients, beside any canary") {
  nn::Sequential model = small_network();
  const DiracCanaries canaries = all_in_or_out(model);
  PublicRandom random(3);
  Batch batch = random_batch(4, random);
  // The data in a canary's row do not matter, not even NaN.
  batch.images.data<float>()[36] = std::nanf("");
  const std::vector<std::int64_t> rows{0, people + 5, 3, people + 99};
  Tape tape, plain;
  PerSampleGradSink sink, expected;
  const Var losses =
      canaries.losses(cross_entropy(model(tape.input(batch.images)), batch.targets), rows);
  const Var ordinary = cross_entropy(model(plain.input(batch.images)), batch.targets);
  for (const std::size_t k : {0, 2})
    CHECK(losses.value().to_vector<float>()[k] == ordinary.value().to_vector<float>()[k]);
  tape.backward(losses, sink);
  plain.backward(ordinary, expected);
  for (Parameter* parameter : model.parameters()) {
    for (const std::int64_t k : {0, 2}) {
      CHECK(distance(flat({{parameter, sink.rows(*parameter).select(0, k)}}),
                     flat({{parameter, expected.rows(*parameter).select(0, k)}})) < 1e-6);
    }
  }
}

TEST_CASE("clipped, a canary moves the sum by the bound") {
  nn::Sequential model = small_network();
  const DiracCanaries canaries = all_in_or_out(model);
  PublicRandom random(3);
  const Batch batch = random_batch(2, random);
  Clipper clipper(flat_group(model.parameters(), 0.5));
  Tape tape({.private_data = true});
  const std::vector<std::int64_t> rows{people + 7, people + 70};
  clipper.add(tape,
              canaries.losses(cross_entropy(model(tape.input(batch.images)), batch.targets), rows));
  const std::vector<double> sums = canaries.elements(clipper.clipped_sums());
  for (std::size_t k = 0; k < sums.size(); ++k)
    CHECK(sums[k] == Approx(k == 7 || k == 70 ? 0.5 : 0).epsilon(1e-5));
}

// 4,000 fair coins: more than 2,190 or fewer than 1,810 heads have a probability below 2e-9.
TEST_CASE("coins are fair, and decide which canaries have rows") {
  nn::Sequential model{nn::Linear(4000, 1)};
  const DiracCanaries canaries = all_in_or_out(model, 4000);
  std::int64_t in = 0;
  for (std::int64_t k = 0; k < canaries.size(); ++k) {
    const bool included = canaries.included()[static_cast<std::size_t>(k)];
    in += included;
    const std::int64_t unit = people + k;
    CHECK(canaries.rows_of_unit(unit) ==
          (included ? std::vector{unit} : std::vector<std::int64_t>{}));
  }
  CHECK(std::abs(in - 2000) <= 190);
  CHECK(canaries.units() == people + 4000);
  CHECK(canaries.rows_of_unit(people - 1) == std::vector{people - 1});
  CHECK(canaries.data_rows(std::vector<std::int64_t>{2, people, people - 1}) ==
        std::vector<std::int64_t>{2, 0, people - 1});
}

TEST_CASE("frozen parameters have no canaries") {
  nn::Sequential model{nn::Linear(4, 3), nn::Linear(3, 2)};
  model[0].freeze();
  CHECK(throws([&] { all_in_or_out(model, 9); }, "9 canaries on 8 trainable elements"));
  CHECK(all_in_or_out(model, 8).size() == 8);
}

TEST_CASE("likelihood ratios are those of a mixture of two normals, step by step") {
  const CanaryTrace trace{{0.3, -2, 90}, {1.7, 0, -90}};
  const double sigma = 0.8, q = 0.2;
  const auto scores = likelihood_ratios(trace, sigma, q);
  const auto normal = [&](double x) { return std::exp(-x * x / (2 * sigma * sigma)); };
  for (const std::size_t k : {0, 1}) {
    double expected = 0;
    for (const auto& step : trace)
      expected += std::log(((1 - q) * normal(step[k]) + q * normal(step[k] - 1)) / normal(step[k]));
    CHECK(scores[k] == Approx(expected).epsilon(1e-12));
  }
  // 90 is surely in and -90 surely out.
  CHECK(scores[2] == Approx(89.5 / (sigma * sigma) + std::log(q) + std::log(1 - q)));
}

TEST_CASE("spreads are sums of squares around the mean") {
  CHECK(spreads({{1, 5}, {2, 5}, {6, 5}}) == std::vector<double>{14, 0});
}

TEST_CASE("canaries refuse what they cannot be") {
  nn::Sequential model{nn::Linear(4, 3)};
  const auto make = [&](const CanaryOptions& options) {
    DiracCanaries(model.parameters(), options);
  };
  CHECK(throws([&] { make({.count = 16}); }, "16 canaries on 15 trainable elements"));
  CHECK(throws([&] { make({.count = 0}); }, "0 canaries"));
  CHECK(throws([&] { make({.count = 1, .population = 0}); }, "population is 0"));
  CHECK(throws([&] { make({.count = 1, .magnitude = 0}); }, "magnitude is 0"));
  const DiracCanaries canaries = all_in_or_out(model, 2);
  CHECK(throws([&] { canaries.rows_of_unit(people + 2); }, "unit 8 of 8"));
  CHECK(throws([&] { canaries.rows_of_unit(-1); }, "unit -1"));
  Tape tape;
  const Var one = tape.input(Tensor::from(std::vector<float>{1}, {1}));
  CHECK(throws([&] { canaries.losses(one, std::vector<std::int64_t>{1, 2}); }, "for 2 rows"));
  CHECK(throws([&] { canaries.losses(one, std::vector<std::int64_t>{people + 2}); }, "row 8 of 8"));
  CHECK(throws([] { likelihood_ratios({}, 1, 1); }, "no steps"));
  CHECK(throws([] { likelihood_ratios({{1, 2}, {1}}, 1, 1); }, "2 canaries in one step, 1"));
  CHECK(throws([] { likelihood_ratios({{1}}, 0, 1); }, "noise multiplier 0"));
  CHECK(throws([] { likelihood_ratios({{1}}, 1, 0); }, "sampling rate 0"));
}

}  // namespace
}  // namespace sotto
