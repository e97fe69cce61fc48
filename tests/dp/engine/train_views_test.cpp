// Random views of a sample as rows of one unit, in private and in ordinary training.
#include <array>
#include <cmath>

#include "autograd/ops.h"
#include "autograd/sink.h"
#include "core/random/philox.h"
#include "dp/engine/training_run.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/optim/optimizer.h"
#include "nn/state.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

constexpr std::int64_t classes = 3;
constexpr double bound = 0.5;
const Augmentation moves{.shift = 2, .flip = true, .contrast = 0.3};

Dataset random_pictures(std::int64_t pictures, const Shape& shape) {
  PublicRandom random(5, static_cast<std::uint64_t>(pictures));
  Shape all{pictures};
  for (const std::int64_t size : shape) all.push_back(size);
  Dataset data{.inputs = Tensor::empty(all), .targets = Tensor::empty({pictures}, Dtype::i64)};
  for (std::int64_t k = 0; k < data.inputs.numel(); ++k)
    data.inputs.data<float>()[k] = static_cast<float>(random.uniform());
  for (std::int64_t k = 0; k < pictures; ++k)
    data.targets.data<std::int64_t>()[k] = random.below(classes);
  return data;
}

Dataset view(const Dataset& samples, std::span<const RecordView> views, std::uint64_t seed) {
  return {augment_each(samples.inputs, views, moves, seed), samples.targets};
}

using Values = std::vector<double>;

Values values_of(const std::map<std::string, Tensor>& tensors) {
  Values all;
  for (const auto& [name, x] : tensors) {
    const Values own = x.to_vector<double>();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

nn::Sequential linear_model(std::int64_t values) {
  nn::Sequential model{nn::Flatten(), nn::Linear(values, classes)};
  model.to(Dtype::f64);
  return model;
}

// A linear model of pictures in f64, trained on all of them in each step, in views if there are
// any.
struct Pictures {
  Pictures(std::int64_t pictures, const Shape& shape, std::int64_t views,
           std::optional<std::int64_t> physical_batch = {})
      : data(random_pictures(pictures, shape)), model(linear_model(shape.numel())) {
    options.engine = {.noise_multiplier = 1e-7,
                      .delta = 1e-3,
                      .steps = 2,
                      .logical_batch = static_cast<double>(pictures),
                      .memory = {.physical_batch = physical_batch},
                      .clip_bound = bound,
                      .seed = 9};
    if (views > 0) options.views = SampleViews{views, view};
  }

  std::int64_t views() const { return options.views ? options.views->count : 1; }
  Var losses(Tape& tape, const Dataset& batch) {
    return cross_entropy(model(cast(tape.input(batch.inputs), Dtype::f64)), batch.targets);
  }
  TrainingRun run(bool privacy) {
    if (privacy) return TrainingRun(model, optimizer, data, ledger, options, loss);
    return TrainingRun(model, optimizer, data, NoPrivacy{}, options, loss);
  }
  Values values() { return values_of(nn::parameter_tensors(model)); }
  // The gradient of one view of one sample, run alone.
  Values gradient(const RecordView& of);
  // The sum over samples of the mean gradient of their views in a step, clipped or not.
  Values sum_of_units(std::int64_t step, bool clipped);

  Dataset data;
  nn::Sequential model;
  nn::Sgd optimizer{model, {.learning_rate = 1}};
  Ledger ledger;
  TrainOptions options;
  TrainLoss loss =
      BatchLoss([this](Tape& tape, const Dataset& batch) { return losses(tape, batch); });
};

Values Pictures::gradient(const RecordView& of) {
  const Dataset one = data.slice(of.record, of.record + 1);
  Tape tape;
  SumSink sink;
  tape.backward(losses(tape, view(one, std::array{of}, options.engine.seed)), sink);
  std::map<std::string, Tensor> by_name;
  for (const auto& [name, parameter] : model.named_parameters()) {
    for (const auto& [of_gradient, sum] : sink.gradients())
      if (of_gradient == parameter) by_name[name] = sum;
  }
  return values_of(by_name);
}

Values Pictures::sum_of_units(std::int64_t step, bool clipped) {
  Values sum(values().size());
  for (std::int64_t record = 0; record < data.size(); ++record) {
    Values mean(sum.size());
    for (std::int64_t view = step * views(); view < (step + 1) * views(); ++view) {
      const Values own = gradient({record, view});
      for (std::size_t k = 0; k < own.size(); ++k) mean[k] += own[k] / static_cast<double>(views());
    }
    double squares = 0;
    for (const double value : mean) squares += value * value;
    const double factor = clipped ? std::min(1.0, bound / std::sqrt(squares)) : 1;
    for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += factor * mean[k];
  }
  return sum;
}

// Makes steps on all pictures, and compares each with its views, run alone.
void check_steps(Pictures& pictures, bool privacy) {
  TrainingRun run = pictures.run(privacy);
  for (std::int64_t step = 0; step < 2; ++step) {
    const Values sum = pictures.sum_of_units(step, privacy), from = pictures.values();
    CHECK(run.step().value().statistics->rows == pictures.data.size() * pictures.views());
    const Values to = pictures.values();
    for (std::size_t k = 0; k < sum.size(); ++k) {
      const double change = -sum[k] / static_cast<double>(pictures.data.size());
      REQUIRE(to[k] - from[k] == Approx(change).margin(1e-6));
    }
  }
}

}  // namespace

TEST_CASE("the private gradient of a unit is the clipped mean over its views alone") {
  Pictures three(5, {1, 4, 5}, 3), four(4, {3, 3, 3}, 4, 9), one(6, {2, 5, 3}, 1, 2);
  for (Pictures* const pictures : {&three, &four, &one}) {
    CAPTURE(pictures->views());
    check_steps(*pictures, true);
  }
}

TEST_CASE("ordinary training takes the mean over the same views") {
  Pictures pictures(5, {1, 4, 5}, 3, 4);
  check_steps(pictures, false);
}

TEST_CASE("the loss of a step is the mean over views, whatever their number") {
  for (const std::int64_t views : {1, 4}) {
    Pictures pictures(3, {1, 3, 3}, views);
    double sum = 0;
    for (std::int64_t record = 0; record < 3; ++record) {
      for (std::int64_t number = 0; number < views; ++number) {
        const RecordView of{record, number};
        Tape tape;
        const Dataset one = view(pictures.data.slice(record, record + 1), std::array{of}, 9);
        sum += pictures.losses(tape, one).value().item() / static_cast<double>(views);
      }
    }
    TrainingRun run = pictures.run(true);
    const StepReport report = run.step().value();
    CHECK(report.statistics->loss_sum / static_cast<double>(report.statistics->rows) ==
          Approx(sum / 3));
  }
}

TEST_CASE("the loss of a step is the mean over the rows of units, however many they have") {
  Pictures pictures(6, {1, 3, 3}, 0, 4);
  pictures.data.units = {7, 8, 7, 9, 7, 8};
  pictures.options.engine.unit = "one user";
  pictures.options.engine.logical_batch = 3;
  pictures.ledger = Ledger({.unit = "one user"});
  Tape tape;
  double sum = 0;
  for (const double loss : pictures.losses(tape, pictures.data).value().to_vector<double>())
    sum += loss;
  TrainingRun run = pictures.run(true);
  const StepReport report = run.step().value();
  CHECK(report.statistics->rows == 6);
  CHECK(report.statistics->units == 3);
  CHECK(report.statistics->loss_sum / 6 == Approx(sum / 6));
}

TEST_CASE("the views of a physical batch are made while the one before is computed") {
  for (const bool privacy : {true, false}) {
    Pictures pictures(6, {1, 3, 3}, 2, 4);
    TrainingRun run = pictures.run(privacy);
    run.step().value();
    run.step().value();
    // The first batch of a step is made ahead where its rows are known: in ordinary training.
    CHECK(run.prefetched_batches() == (privacy ? 4 : 5));
  }
}

TEST_CASE("views that nothing makes, and units of several samples in views, are refused") {
  Pictures pictures(6, {1, 3, 3}, 2);
  const auto train_it = [&] {
    train(pictures.model, pictures.optimizer, pictures.data, pictures.ledger, pictures.options,
          pictures.loss);
  };
  pictures.options.views->make = {};
  CHECK(throws(train_it, "2 views of each sample, which nothing makes"));
  pictures.options.views = SampleViews{2, view};
  pictures.data.units = {7, 8, 7, 9, 7, 8};
  pictures.options.engine.unit = "one user";
  pictures.ledger = Ledger({.unit = "one user"});
  CHECK(throws(train_it, "the data set names its units, and so does rows_of_unit"));
  CHECK(pictures.ledger.releases() == 0);
}
