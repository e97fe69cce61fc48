#include "dp/engine/standardize.h"

#include <cmath>
#include <random>

#include "dp/accounting/calibration.h"
#include "dp/engine/train.h"
#include "dp/engine/training_checkpoint.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/data/tables/table_schema.h"
#include "nn/layers.h"
#include "nn/optim/optimizer.h"
#include "nn/state.h"
#include "tests/support/catch.h"
#include "tests/support/ledger_files.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

constexpr std::int64_t people = 200, columns = 3;
constexpr double almost_none = 1e-6;  // a noise multiplier that leaves exact moments

// Column k is around 10 k with deviation k + 1, but for some far outliers; labels are random.
Dataset table(std::int64_t rows = people) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  std::vector<double> x;
  std::vector<std::int64_t> labels;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (int k = 0; k < columns; ++k)
      x.push_back(row % 50 == 7 ? 1e7 : 10 * k + (k + 1) * normal(random));
    labels.push_back(static_cast<std::int64_t>(random() % 2));
  }
  return {.inputs = to_dtype(Tensor::from(x, {rows, columns}), Dtype::f32),
          .targets = Tensor::from(labels, {rows})};
}

const std::map<std::int64_t, StatisticRange> ranges{{0, {-5, 8}}, {2, {0, 50}}};

struct Setting {
  nn::Sequential model{nn::Linear(columns, 2)};
  nn::Standardize layer{columns};
  nn::Sgd optimizer{model, {.learning_rate = 0.1}};

  StandardizeOptions options(double noise = 20) {
    return {.layer = &layer, .ranges = ranges, .noise_multiplier = noise};
  }
  // Releases with a ledger of its own.
  void release(const Dataset& data, double noise, const std::string& unit = LedgerHeader{}.unit) {
    Engine engine(model, optimizer, data, Ledger({.unit = unit}),
                  {.noise_multiplier = 1,
                   .planned_means = {planned_means(options(noise))},
                   .logical_batch = 10,
                   .unit = unit});
    standardize(engine, data, options(noise));
  }
  std::vector<float> means() const { return layer.mean->value.to_vector<float>(); }
  std::vector<float> deviations() const { return layer.deviation->value.to_vector<float>(); }
};

// Both moments of the clamped values of a column over the units, whose values are means.
std::pair<double, double> moments(const Dataset& data, std::int64_t column) {
  const StatisticRange range = ranges.at(column);
  const std::vector<float> x = data.inputs.to_vector<float>();
  double first = 0, second = 0;
  for (const auto& rows : data.rows_of_units()) {
    for (const std::int64_t row : rows) {
      const auto value = static_cast<double>(x[static_cast<std::size_t>(row * columns + column)]);
      const double clamped = std::clamp(value, range.low, range.high);
      first += clamped / static_cast<double>(rows.size());
      second += clamped * clamped / static_cast<double>(rows.size());
    }
  }
  const auto units = static_cast<double>(data.unit_count());
  return {first / units, second / units};
}

}  // namespace

TEST_CASE("means and deviations are those of the clamped columns, each unit with equal weight") {
  for (const bool users : {false, true}) {
    CAPTURE(users);
    Dataset data = table();
    for (std::int64_t row = 0; users && row < people; ++row) data.units.push_back(row * row % 77);
    Setting s;
    s.release(data, almost_none, users ? "one user" : LedgerHeader{}.unit);
    for (const std::int64_t column : {0, 2}) {
      const auto [first, second] = moments(data, column);
      const auto at = static_cast<std::size_t>(column);
      CHECK(s.means()[at] == Approx(first).epsilon(1e-4));
      CHECK(s.deviations()[at] == Approx(std::sqrt(second - first * first)).epsilon(1e-3));
    }
    CHECK(s.means()[1] == 0);
    CHECK(s.deviations()[1] == 1);
  }
}

TEST_CASE("the units are those of the engine's options, also where the data set names none") {
  Dataset users = table();
  for (std::int64_t row = 0; row < people; ++row) users.units.push_back(row % 3);
  const std::vector<std::vector<std::int64_t>> rows = users.rows_of_units();
  const std::string unit = "one user";
  Setting s;
  const EngineOptions options{.noise_multiplier = 1,
                              .planned_means = {planned_means(s.options(almost_none))},
                              .logical_batch = 2,
                              .unit = unit,
                              .rows_of_unit = [&](std::int64_t user) {
                                return user < 3 ? rows[static_cast<std::size_t>(user)]
                                                : std::vector<std::int64_t>();
                              }};
  // The fourth user has no samples, and adds nothing.
  Engine engine(s.model, s.optimizer, 4, Ledger({.unit = unit}), options);
  standardize(engine, table(), s.options(almost_none));
  for (const auto& [column, range] : ranges) {
    const double first = range.to_unit(moments(users, column).first);
    CHECK(range.to_unit(s.means()[static_cast<std::size_t>(column)]) ==
          Approx(0.75 * first).epsilon(1e-4));
  }
}

TEST_CASE("values of several places of a column are one value, their mean") {
  Dataset pictures = table();
  pictures.inputs = concat(
      std::vector{reshape(pictures.inputs, {people, columns, 1}), full({people, columns, 1}, 4)},
      2);
  Setting s;
  s.release(pictures, almost_none);
  const auto [first, second] = moments(table(), 0);
  CHECK(s.means()[0] == Approx((first + 4) / 2).epsilon(1e-4));
  const double mean = (first + 4) / 2;
  CHECK(s.deviations()[0] == Approx(std::sqrt((second + 16) / 2 - mean * mean)).epsilon(1e-3));
}

TEST_CASE("leaving out any unit moves the sums by no more than the sensitivity") {
  const Dataset all = table(60);
  // The sums of both moments, scaled to [-1, 1], from what was released.
  const auto sums = [&](const Dataset& data) {
    Setting s;
    s.release(data, almost_none);
    std::vector<double> y;
    for (const auto& [column, range] : ranges) {
      const auto at = static_cast<std::size_t>(column);
      const auto n = static_cast<double>(data.size());
      const double first = range.to_unit(static_cast<double>(s.means()[at]));
      const double deviation = 2 * s.deviations()[at] / (range.high - range.low);
      y.push_back(n * first);
      y.push_back(n * (2 * (deviation * deviation + first * first) - 1));
    }
    return y;
  };
  const std::vector<double> whole = sums(all);
  double largest = 0;
  for (std::int64_t left_out = 0; left_out < all.size(); ++left_out) {
    std::vector<std::int64_t> rows;
    for (std::int64_t row = 0; row < all.size(); ++row)
      if (row != left_out) rows.push_back(row);
    const std::vector<double> rest = sums(all.batch(rows));
    double square = 0;
    for (std::size_t k = 0; k < whole.size(); ++k)
      square += (whole[k] - rest[k]) * (whole[k] - rest[k]);
    largest = std::max(largest, std::sqrt(square));
  }
  // Two moments of two columns. The outliers reach the bound.
  CHECK(largest == Approx(2).epsilon(1e-3));
}

// t: the means of both moments, scaled to [-1, 1], are those of x and 2 x^2 - 1.
TEST_CASE("a unit whose rows are taken away moves the sums by no more than the sensitivity") {
  const Dataset data = table(60);
  const auto sums = [&](std::int64_t without_rows) {
    Setting s;
    Engine engine(s.model, s.optimizer, data.size(), Ledger(),
                  {.noise_multiplier = 1,
                   .planned_means = {planned_means(s.options(almost_none))},
                   .logical_batch = 10,
                   .rows_of_unit = [&](std::int64_t unit) {
                     return unit == without_rows ? std::vector<std::int64_t>() : std::vector{unit};
                   }});
    std::vector<double> all;
    standardize(engine, data, s.options(almost_none));
    for (const auto& [column, range] : ranges) {
      const auto at = static_cast<std::size_t>(column);
      const double first = range.to_unit(static_cast<double>(s.means()[at]));
      const double deviation = 2 * s.deviations()[at] / (range.high - range.low);
      all.push_back(60 * first);
      all.push_back(60 * (2 * (deviation * deviation + first * first) - 1));
    }
    return all;
  };
  const std::vector<double> whole = sums(-1);
  double largest = 0;
  for (std::int64_t unit = 0; unit < data.size(); ++unit) {
    const std::vector<double> rest = sums(unit);
    double square = 0;
    for (std::size_t k = 0; k < whole.size(); ++k)
      square += (whole[k] - rest[k]) * (whole[k] - rest[k]);
    largest = std::max(largest, std::sqrt(square));
  }
  CHECK(largest == Approx(2).epsilon(1e-3));
}

TEST_CASE("the release is noisy, and no deviation is below the noise's") {
  Dataset data = table();
  data.inputs = full({people, columns}, 1);
  Setting s, again;
  s.release(data, 1);
  again.release(data, 1);
  CHECK(s.means() != again.means());
  for (const auto& [column, range] : ranges) {
    const auto at = static_cast<std::size_t>(column);
    const double noise = 2.0 / people;
    CHECK(s.deviations()[at] >= 0.999 * (range.high - range.low) / 2 * std::sqrt(noise));
    CHECK(s.means()[at] == Approx(1).margin(6 * noise * (range.high - range.low) / 2));
  }
}

TEST_CASE("training that standardises plans the release and keeps the target epsilon") {
  const Dataset data = table();
  Setting s;
  TrainOptions options{.engine = {.target_epsilon = 2, .steps = 20, .logical_batch = 40}};
  double alone = 0, together = 0;
  const auto noise = [](double& to) {
    return [&to](const StepReport&, const Engine& engine) {
      to = engine.noise_multiplier();
      return true;
    };
  };
  train(s.model, s.optimizer, data, Ledger(), options, nn::CrossEntropyLoss{}, noise(alone));
  nn::Sequential model;
  StandardizeOptions standardizing = s.options();
  standardizing.layer = &model.add(nn::Standardize(columns));
  model.add(nn::Linear(columns, 2));
  nn::Sgd optimizer(model, {.learning_rate = 0.1});
  options.standardize = standardizing;
  const Ledger ledger;
  const PrivacyStatement statement =
      train(model, optimizer, data, ledger, options, nn::CrossEntropyLoss{}, noise(together));
  CHECK(together > alone);
  CHECK(together < 1.1 * alone);
  CHECK(statement.epsilon <= 2);
  CHECK(statement.epsilon > 1.99);
  CHECK_FALSE(ledger.history().adaptive);
  const Event release{20, Sampling::poisson, 1};
  const EventCounts events = ledger.events();
  CHECK(std::count(events.begin(), events.end(), std::pair{release, std::int64_t{1}}) == 1);
  CHECK(ledger.releases() == 21);
  auto accountant = accountant_factory()();
  for (const auto& [event, count] : events) accountant->compose(event, count);
  CHECK(statement.epsilon == Approx(accountant->epsilon(options.engine.delta)));
  CHECK(standardizing.layer->mean->value.to_vector<float>()[2] != 0);
}

TEST_CASE("a training that goes on does not release means and deviations again") {
  const Place place;
  const Dataset data = table();
  TrainOptions options{.engine = {.target_epsilon = 2, .steps = 6, .logical_batch = 40},
                       .save = place.path("state"),
                       .save_every = 2};
  const auto run = [&](std::int64_t stop_at) {
    nn::Sequential model;
    auto& layer = model.add(nn::Standardize(columns));
    model.add(nn::Linear(columns, 2));
    nn::Sgd optimizer(model, {.learning_rate = 0.1});
    options.standardize = StandardizeOptions{.layer = &layer, .ranges = ranges};
    train(model, optimizer, data, place.path(), options, nn::CrossEntropyLoss{},
          [&](const StepReport& report, const Engine&) { return report.step < stop_at; });
    return std::pair(layer.mean->value.to_vector<float>(),
                     layer.deviation->value.to_vector<float>());
  };
  const auto first = run(2);
  CHECK(run(10) == first);
  CHECK(Ledger::open(place.path()).releases() == 7);
}

TEST_CASE("the ranges of a table's numbers are those of its inputs") {
  const TableSchema schema = TableSchema::from_json(R"({"columns": [
    {"name": "c", "kind": "category", "categories": ["a", "b"], "other": true},
    {"name": "x", "kind": "number", "min": 3, "max": 9},
    {"name": "z", "kind": "number", "mean": 3, "deviation": 9},
    {"name": "i", "kind": "ignore"},
    {"name": "w", "kind": "number", "min": 0, "max": 9, "log": true},
    {"name": "y", "kind": "label", "min": 0, "max": 1}]})");
  const auto found = number_ranges(schema);
  REQUIRE(found.size() == 2);
  for (const std::int64_t input : {3, 5}) {
    REQUIRE(found.contains(input));
    CHECK(found.at(input).low == 0);
    CHECK(found.at(input).high == 1);
  }
}

TEST_CASE("mistakes in standardising are named, and nothing is released") {
  const Dataset data = table();
  Setting s;
  const Ledger ledger;
  Engine engine(s.model, s.optimizer, data, ledger, {.noise_multiplier = 1, .logical_batch = 10});
  CHECK(throws([&] { standardize(engine, data, {.ranges = ranges}); }, "standardize: no layer"));
  CHECK(throws([&] { standardize(engine, data, {.layer = &s.layer}); },
               "standardize: no column has a range"));
  CHECK(throws(
      [&] {
        standardize(engine, data, {.layer = &s.layer, .ranges = {{3, {0, 1}}}});
      },
      "standardize: column 3 of 3"));
  CHECK(throws(
      [&] {
        standardize(engine, data, {.layer = &s.layer, .ranges = {{0, {1, 1}}}});
      },
      "standardize: column 0 has a range from 1 to 1"));
  CHECK(throws([&] { standardize(engine, table(100), s.options()); },
               "standardize: data of 100 units and an engine of 200"));
  nn::Standardize narrow(2);
  CHECK(throws([&] { standardize(engine, data, {.layer = &narrow, .ranges = ranges}); },
               "standardize: inputs (200, 3) and a layer of 2 columns"));
  CHECK(ledger.releases() == 0);
  const TrainOptions outside{.engine = {.noise_multiplier = 1, .steps = 2, .logical_batch = 10},
                             .standardize = s.options()};
  CHECK(throws([&] { train(s.model, s.optimizer, data, ledger, outside, nn::CrossEntropyLoss{}); },
               "train: the layer that standardises is not part of the model"));
  CHECK(ledger.releases() == 0);
}

}  // namespace sotto
