#include "dp/engine/dataset_units.h"

#include <algorithm>

#include "dp/clipping/clipper.h"
#include "dp/sampling/sampler.h"
#include "tests/support/catch.h"
#include "tests/support/engine_training.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

// Users of three samples each.
Dataset with_users() {
  Dataset data = make_digits(population, 1);
  for (std::int64_t k = 0; k < population; ++k) data.units.push_back(1000 - 7 * (k % 40));
  return data;
}

}  // namespace

TEST_CASE("an engine on a data set has its units, and the rows of each") {
  const Dataset data = with_users();
  Training t;
  Ledger ledger({.unit = "one user"});
  EngineOptions options = options_of(Sampling::full_batch);
  options.noise_multiplier = 1;
  options.unit = "one user";
  options.logical_batch = 40;
  Engine engine(t.model, t.optimizer, data, ledger, options);
  CHECK(ledger.population() == 40);
  CHECK(engine.sampler().population() == 40);
  std::vector<std::int64_t> rows;
  engine.step([&](Tape& tape, std::span<const std::int64_t> asked) {
    rows.insert(rows.end(), asked.begin(), asked.end());
    const Dataset batch = data.batch(asked);
    return cross_entropy(t.model(tape.input(batch.inputs)), batch.targets);
  });
  REQUIRE(rows.size() == static_cast<std::size_t>(population));
  for (std::size_t k = 0; k < rows.size(); k += 3) {
    const auto user = [&](std::size_t i) { return data.units[static_cast<std::size_t>(rows[i])]; };
    CHECK(user(k) == user(k + 1));
    CHECK(user(k) == user(k + 2));
    if (k > 0) CHECK(user(k) > user(k - 1));
  }
  std::sort(rows.begin(), rows.end());
  CHECK(std::adjacent_find(rows.begin(), rows.end()) == rows.end());
}

TEST_CASE("an engine on a data set without units has its samples") {
  Training t;
  Ledger ledger;
  EngineOptions options = options_of(Sampling::poisson);
  options.noise_multiplier = 1;
  const Engine engine(t.model, t.optimizer, t.data, ledger, options);
  CHECK(engine.sampler().population() == population);
  CHECK_FALSE(with_units_of(t.data, options).rows_of_unit);
}

TEST_CASE("units with a number of their own are not said to be one training example") {
  Dataset data = with_users();
  const EngineOptions options{.noise_multiplier = 1};
  CHECK(throws([&] { with_units_of(data, options); },
               "names its units, where unit says \"one training example\""));
  EngineOptions twice{.noise_multiplier = 1, .unit = "one user"};
  CHECK(with_units_of(data, twice).rows_of_unit);
  twice.rows_of_unit = [](std::int64_t unit) { return std::vector<std::int64_t>{unit}; };
  CHECK(throws([&] { with_units_of(data, twice); }, "names its units, and so does rows_of_unit"));
  // Each its own unit, under other numbers.
  for (std::int64_t k = 0; k < population; ++k) data.units[static_cast<std::size_t>(k)] = 500 - k;
  CHECK(throws([&] { with_units_of(data, options); }, "where unit says"));
  twice.rows_of_unit = nullptr;
  const EngineOptions one_each = with_units_of(data, twice);
  CHECK(one_each.rows_of_unit(0) == std::vector<std::int64_t>{population - 1});
}

// The sensitivity that an engine states, for units of one sample each or with one unit of two.
double stated_sensitivity(bool second_sample) {
  Training t;
  Dataset data = make_digits(population, 1);
  for (std::int64_t k = 0; k < population; ++k) data.units.push_back(7 * k - 3);
  if (second_sample) data.units[2] = data.units[1];
  Ledger ledger({.unit = "one user"});
  EngineOptions options = options_of(Sampling::poisson);
  options.noise_multiplier = 1;
  options.unit = "one user";
  const Engine engine(t.model, t.optimizer, data, ledger, options);
  return engine.clipper().sensitivity();
}

TEST_CASE("what is stated of a run does not tell whether somebody has a second sample") {
  CHECK(stated_sensitivity(false) == stated_sensitivity(true));
}

}  // namespace sotto
