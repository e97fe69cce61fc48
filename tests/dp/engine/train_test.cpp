#include "dp/engine/train.h"

#include <filesystem>

#include "core/devices.h"
#include "dp/engine/training_checkpoint.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/predict.h"
#include "tests/support/catch.h"
#include "tests/support/engine_training.h"
#include "tests/support/ledger_files.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

TrainOptions options_for(std::int64_t planned = 12) {
  return {.engine = {.target_epsilon = 5, .delta = 1e-4, .steps = planned, .logical_batch = 30}};
}

struct Stop : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace

TEST_CASE("train makes the planned steps within the target, and says what is guaranteed") {
  Training t;
  Ledger ledger;
  const std::vector<float> before = t.weights();
  std::vector<std::int64_t> seen;
  double spent = 0;
  const PrivacyStatement statement =
      train(t.model, t.optimizer, t.data, ledger, options_for(), nn::CrossEntropyLoss{},
            [&](const StepReport& report, const Engine& engine) {
              seen.push_back(report.step);
              spent = engine.epsilon();
              return true;
            });
  CHECK(seen.size() == 12);
  CHECK(seen.back() == 12);
  CHECK(t.weights() != before);
  CHECK(statement.epsilon == spent);
  CHECK(statement.epsilon <= 5);
  CHECK(statement.epsilon > 4.5);
  CHECK(ledger.releases() == 12);
  CHECK(ledger.population() == population);
}

TEST_CASE("a model on any device is trained there, as on the CPU", "[gpu]") {
  constexpr std::int64_t samples = 12;
  std::vector<float> expected;
  for (const DeviceInfo& info : devices()) {
    CAPTURE(name(info.device));
    const Dataset data = make_digits(samples, 1);
    nn::manual_seed(1);
    nn::Sequential model{nn::Flatten(), nn::Linear(784, 10)};
    model.to(info.device);
    nn::Sgd optimizer(model, {.learning_rate = 1});
    // Full batches without noise: the training is deterministic.
    const EngineOptions all{.noise_multiplier = 0,
                            .delta = 1e-2,
                            .steps = 2,
                            .sampling = Sampling::full_batch,
                            .logical_batch = samples};
    train(model, optimizer, data, Ledger(), {.engine = all}, nn::CrossEntropyLoss{});
    const Tensor& weight = model.parameters()[0]->value;
    CHECK(weight.device() == info.device);
    const std::vector<float> got = weight.to_vector<float>();
    if (expected.empty()) expected = got;  // the CPU comes first
    for (std::size_t k = 0; k < got.size(); ++k) CHECK(got[k] == Approx(expected[k]).margin(1e-4));
  }
}

TEST_CASE("a callback that returns false ends the training") {
  Training t;
  Ledger ledger;
  const auto third = [](const StepReport& report, const Engine&) { return report.step < 3; };
  const PrivacyStatement statement =
      train(t.model, t.optimizer, t.data, ledger, options_for(), nn::CrossEntropyLoss{}, third);
  CHECK(ledger.releases() == 3);
  REQUIRE(statement.epsilon_planned);
  CHECK(*statement.epsilon_planned > statement.epsilon);
}

TEST_CASE("losses of labels, of values and of whole batches are taken") {
  Dataset data = make_digits(population, 1);
  const auto weights = [&](const TrainLoss& loss) {
    nn::manual_seed(1);
    nn::Sequential model{nn::Flatten(), nn::Linear(784, 10)};
    nn::Sgd optimizer(model, {.learning_rate = 0.1});
    Ledger ledger;
    TrainOptions options = options_for();
    options.engine.target_epsilon = {};
    options.engine.noise_multiplier = 0;
    options.engine.sampling = Sampling::full_batch;
    options.engine.logical_batch = population;
    train(model, optimizer, data, ledger, options, loss);
    return model.parameters()[0]->value.to_vector<float>();
  };
  const auto labels = weights(nn::CrossEntropyLoss{});
  CHECK(labels == weights([](const Var& y, const Tensor& t) { return cross_entropy(y, t); }));
  data.targets = full({population, 10}, 0.1);
  const auto values = weights(nn::MseLoss{});
  CHECK(values != labels);
  CHECK(values ==
        weights([](const Var& y, const Var& t) { return squared_error(y, t, Within::mean); }));
  // A BatchLoss gets the batch, and may use its fields and inputs without the model.
  data.fields["weights"] = full({population}, 0);
  nn::manual_seed(1);
  CHECK(weights([&](Tape& tape, const Dataset& batch) {
          const Var w = tape.input(batch.field("weights"));
          return w * sum_per_sample(tape.input(batch.inputs));
        }) == nn::Sequential{(nn::manual_seed(1), nn::Flatten()), nn::Linear(784, 10)}
                  .parameters()[0]
                  ->value.to_vector<float>());
}

TEST_CASE("a training that was stopped anywhere goes on where it was saved") {
  const Place place;
  TrainOptions options = options_for();
  options.save = place.path() + ".state";
  options.save_every = 4;
  // The ninth of 12 steps throws. The steps after the last checkpoint, at step 8, are lost but
  // spent.
  {
    Training t;
    const auto failing = [](const StepReport& report, const Engine&) {
      if (report.step == 9) throw Stop("power");
      return true;
    };
    CHECK_THROWS_AS(
        train(t.model, t.optimizer, t.data, place.path(), options, nn::CrossEntropyLoss{}, failing),
        Stop);
  }
  std::vector<std::int64_t> seen;
  const auto watch = [&](const StepReport& report, const Engine&) {
    seen.push_back(report.step);
    return true;
  };
  Training t;
  const PrivacyStatement statement =
      train(t.model, t.optimizer, t.data, place.path(), options, nn::CrossEntropyLoss{}, watch);
  REQUIRE(!seen.empty());
  CHECK(seen.front() == 9);
  CHECK(statement.epsilon <= 5);
  // A finished training makes no further step and returns its result.
  const std::size_t steps_made = seen.size();
  Training again;
  const PrivacyStatement same = train(again.model, again.optimizer, again.data, place.path(),
                                      options, nn::CrossEntropyLoss{}, watch);
  CHECK(seen.size() == steps_made);
  CHECK(again.weights() == t.weights());
  CHECK(same.epsilon == statement.epsilon);
}

TEST_CASE("a training in two halves is the whole one but for its noise") {
  // Without noise and with all units in each batch, training is deterministic.
  TrainOptions options = options_for(8);
  options.engine.target_epsilon = {};
  options.engine.noise_multiplier = 0;
  options.engine.sampling = Sampling::full_batch;
  options.engine.logical_batch = population;
  Training whole;
  train(whole.model, whole.optimizer, whole.data, Ledger(), options, nn::CrossEntropyLoss{});
  const Place place;
  options.save = place.path() + ".state";
  Training half;
  train(half.model, half.optimizer, half.data, place.path(), options, nn::CrossEntropyLoss{},
        [](const StepReport& report, const Engine&) { return report.step < 3; });
  Training rest;
  train(rest.model, rest.optimizer, rest.data, place.path(), options, nn::CrossEntropyLoss{});
  CHECK(rest.weights() == whole.weights());
}

TEST_CASE("earlier runs on a ledger's file count") {
  const Place place;
  Training t;
  const double first =
      train(t.model, t.optimizer, t.data, place.path(), options_for(4), nn::CrossEntropyLoss{})
          .epsilon;
  TrainOptions more = options_for(4);
  more.engine.target_epsilon = 10;
  Training other;
  const PrivacyStatement both =
      train(other.model, other.optimizer, other.data, place.path(), more, nn::CrossEntropyLoss{});
  CHECK(both.epsilon > first);
  CHECK(both.releases == 8);
}

TEST_CASE("what cannot be saved is refused before anything is released") {
  Training t;
  Ledger ledger;
  const Place place;
  TrainOptions options = options_for();
  options.save = place.path() + ".state";
  const nn::CrossEntropyLoss loss;
  CHECK_THROWS_AS(train(t.model, t.optimizer, t.data, ledger, options, loss),
                  std::invalid_argument);
  CHECK(ledger.releases() == 0);
  options.save = place.path() + ".no/such/folder";
  CHECK_THROWS_AS(train(t.model, t.optimizer, t.data, place.path(), options, loss), SystemFailure);
  CHECK_FALSE(std::filesystem::exists(place.path()));
  options.save = "";
  options.save_every = 0;
  CHECK(throws([&] { train(t.model, t.optimizer, t.data, ledger, options, loss); }, "every 0"));
  options.engine.steps = 0;
  CHECK(throws([&] { train(t.model, t.optimizer, t.data, ledger, options, loss); }, "0 steps"));
}

TEST_CASE("a checkpoint needs the ledger that it belongs to") {
  const Place place;
  TrainOptions options = options_for(4);
  options.save = place.path() + ".state";
  const nn::CrossEntropyLoss loss;
  Training t;
  train(t.model, t.optimizer, t.data, place.path(), options, loss);
  CHECK(throws([&] { train(t.model, t.optimizer, t.data, Ledger(), options, loss); },
               "is there, and the ledger is not resumed from it"));
  CHECK(throws(
      [&] { train(t.model, t.optimizer, t.data, Ledger::open(place.path()), options, loss); },
      "is not resumed from it"));
  CHECK_THROWS_AS(train(t.model, t.optimizer, t.data, place.path() + ".other", options, loss),
                  SystemFailure);
  const Ledger resumed = Ledger::resume(place.path(), checkpoint_mark(options.save));
  train(t.model, t.optimizer, t.data, resumed, options, loss);
}

}  // namespace sotto
