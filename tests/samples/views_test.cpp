// Random views of a sample as rows of one unit, in the common body of training programs.
#include <cmath>

#include "autograd/ops.h"
#include "autograd/sink.h"
#include "core/random/philox.h"
#include "nn/layers.h"
#include "nn/state.h"
#include "samples/training/recorder.h"
#include "samples/training/trainer.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

using namespace sotto;
using samples::Data;
using samples::Settings;

namespace {

constexpr std::int64_t classes = 3;
const Augmentation moves{.shift = 2, .flip = true, .contrast = 0.3};

// Random pictures, of which a linear model is trained in f64 on `count` views each.
class Pictures final : public samples::Task {
 public:
  Pictures(std::int64_t pictures, const Shape& shape, std::int64_t count)
      : shape_(shape), count_(count) {
    PublicRandom random(5, static_cast<std::uint64_t>(pictures));
    Shape all{pictures};
    for (const std::int64_t size : shape) all.push_back(size);
    data_ = {.inputs = Tensor::empty(all), .targets = Tensor::empty({pictures}, Dtype::i64)};
    for (std::int64_t k = 0; k < data_.inputs.numel(); ++k)
      data_.inputs.data<float>()[k] = static_cast<float>(random.uniform());
    for (std::int64_t k = 0; k < pictures; ++k)
      data_.targets.data<std::int64_t>()[k] = random.below(classes);
  }

  std::string program() const override { return "pictures"; }
  std::string description() const override { return ""; }
  std::string title() const override { return ""; }
  Settings defaults() const override { return {}; }
  double ordinary_learning_rate() const override { return 1; }
  std::vector<samples::Preset> presets() const override { return {}; }
  void add_data_options(samples::CommandLine& /*line*/, Settings& /*settings*/) override {}
  void add_model_options(samples::CommandLine& /*line*/) override {}
  std::vector<samples::TaskSetting> settings() override { return {}; }
  void prepare(Settings& /*settings*/) override {}
  Data load(const Settings& /*settings*/) override { return {data_, data_}; }
  const samples::DataSource& source() const override { return source_; }
  double evaluate(const Tensor& /*outputs*/, const Data& /*data*/) override { return 0; }

  std::unique_ptr<nn::Module> make_model(const Data& /*data*/, std::uint64_t /*seed*/) override {
    auto model = std::make_unique<nn::Sequential>(
        nn::Sequential{nn::Flatten(), nn::Linear(shape_.numel(), classes)});
    model->to(Dtype::f64);
    return model;
  }
  std::int64_t views() const override { return count_; }
  Dataset view(const Dataset& samples, std::span<const RecordView> views,
               std::uint64_t seed) const override {
    return {augment_each(samples.inputs, views, moves, seed), samples.targets};
  }
  Var losses(Tape& tape, nn::Module& model, const Dataset& batch) override {
    return cross_entropy(model(cast(tape.input(batch.inputs), Dtype::f64)), batch.targets);
  }

 private:
  Shape shape_;
  std::int64_t count_;
  Dataset data_;
  samples::DataSource source_;
};

using Values = std::vector<double>;

Values values_of(const std::map<std::string, Tensor>& tensors) {
  Values all;
  for (const auto& [name, x] : tensors) {
    const Values own = x.to_vector<double>();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

// The gradient of one view of one sample, run alone.
Values gradient(Pictures& task, nn::Module& model, const Data& data, const RecordView& of,
                std::uint64_t seed) {
  const Dataset one = data.train.slice(of.record, of.record + 1);
  Tape tape;
  SumSink sink;
  tape.backward(task.losses(tape, model, task.view(one, std::array{of}, seed)), sink);
  std::map<std::string, Tensor> by_name;
  for (const auto& [name, parameter] : model.named_parameters()) {
    for (const auto& [of_gradient, sum] : sink.gradients())
      if (of_gradient == parameter) by_name[name] = sum;
  }
  return values_of(by_name);
}

// The sum over samples of the mean gradient of their views in a step, clipped if there is a bound.
Values sum_of_units(Pictures& task, nn::Module& model, const Data& data, std::int64_t step,
                    const Settings& settings) {
  const std::int64_t views = task.views();
  Values sum(values_of(nn::parameter_tensors(model)).size());
  for (std::int64_t record = 0; record < data.train.size(); ++record) {
    Values mean(sum.size());
    for (std::int64_t view = step * views; view < (step + 1) * views; ++view) {
      const Values own = gradient(task, model, data, {record, view}, settings.seed);
      for (std::size_t k = 0; k < own.size(); ++k) mean[k] += own[k] / static_cast<double>(views);
    }
    double squares = 0;
    for (const double value : mean) squares += value * value;
    const double factor =
        settings.privacy ? std::min(1.0, settings.clip_bound / std::sqrt(squares)) : 1;
    for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += factor * mean[k];
  }
  return sum;
}

struct Case {
  std::int64_t pictures, views;
  Shape shape;
  std::optional<std::int64_t> physical_batch = {};
};

// Makes steps on all pictures, and compares each with its views, run alone.
void check_steps(const Case& tested, bool privacy) {
  Pictures task(tested.pictures, tested.shape, tested.views);
  Settings settings{.privacy = privacy,
                    .epsilon = {},
                    .noise_multiplier = 1e-7,
                    .clip_bound = 0.5,
                    .steps = 2,
                    .batch = static_cast<double>(tested.pictures),
                    .learning_rate = 1,
                    .momentum = 0,
                    .seed = 9,
                    .train_size = tested.pictures};
  settings.memory.physical_batch = tested.physical_batch;
  const Data data = task.load(settings);
  const TemporaryFolder folder;
  Ledger ledger = Ledger::create(folder.path("ledger"));
  samples::Trainer trainer(task, settings, data, ledger, std::nullopt);
  const auto model = task.make_model(data, 0);
  for (std::int64_t step = 0; step < 2; ++step) {
    const auto before = trainer.checkpoint().model;
    nn::set_parameters(*model, before, "before");
    const Values sum = sum_of_units(task, *model, data, step, settings), from = values_of(before);
    const samples::StepFacts facts = trainer.step().value();
    CHECK(facts.rows == tested.pictures * tested.views);
    const Values to = values_of(trainer.checkpoint().model);
    for (std::size_t k = 0; k < sum.size(); ++k) {
      const double change = -sum[k] / static_cast<double>(tested.pictures);
      REQUIRE(to[k] - from[k] == Approx(change).margin(1e-6));
    }
  }
}

}  // namespace

TEST_CASE("the private gradient of a unit is the clipped mean over its views alone") {
  for (const Case& tested :
       {Case{.pictures = 5, .views = 3, .shape = {1, 4, 5}},
        Case{.pictures = 4, .views = 4, .shape = {3, 3, 3}, .physical_batch = 9},
        Case{.pictures = 6, .views = 1, .shape = {2, 5, 3}, .physical_batch = 2}}) {
    CAPTURE(tested.views);
    check_steps(tested, true);
  }
}

TEST_CASE("ordinary training takes the mean over the same views") {
  check_steps({.pictures = 5, .views = 3, .shape = {1, 4, 5}, .physical_batch = 4}, false);
}

TEST_CASE("the loss of a step is the mean over views, whatever their number") {
  for (const std::int64_t views : {1, 4}) {
    Pictures task(3, {1, 3, 3}, views);
    Settings settings{.epsilon = {}, .noise_multiplier = 1, .batch = 3, .train_size = 3};
    const Data data = task.load(settings);
    const TemporaryFolder folder;
    Ledger ledger = Ledger::create(folder.path("ledger"));
    samples::Trainer trainer(task, settings, data, ledger, std::nullopt);
    const auto model = task.make_model(data, 0);
    nn::set_parameters(*model, trainer.checkpoint().model, "before");
    double sum = 0;
    for (std::int64_t record = 0; record < 3; ++record) {
      for (std::int64_t view = 0; view < views; ++view) {
        const RecordView of{record, view};
        Tape tape;
        const Dataset one = task.view(data.train.slice(record, record + 1), std::array{of}, 0);
        sum += task.losses(tape, *model, one).value().item() / static_cast<double>(views);
      }
    }
    const samples::StepFacts facts = trainer.step().value();
    CHECK(facts.loss_sum / static_cast<double>(facts.rows) == Approx(sum / 3));
  }
}

TEST_CASE("the recorded loss is the mean over the rows of units, however many they have") {
  Pictures task(6, {1, 3, 3}, 0);
  Settings settings{.epsilon = {}, .noise_multiplier = 1, .batch = 3, .train_size = 3};
  settings.memory.physical_batch = 4;
  settings.unit = "one user";
  Data data = task.load(settings);
  data.train.units = {7, 8, 7, 9, 7, 8};
  const TemporaryFolder folder;
  Ledger ledger = Ledger::create(folder.path("ledger"), {.unit = settings.unit});
  samples::Trainer trainer(task, settings, data, ledger, std::nullopt);
  const auto model = task.make_model(data, 0);
  nn::set_parameters(*model, trainer.checkpoint().model, "before");
  Tape tape;
  const Values losses = task.losses(tape, *model, data.train).value().to_vector<double>();
  double sum = 0;
  for (const double loss : losses) sum += loss;
  const samples::StepFacts facts = trainer.step().value();
  CHECK(facts.rows == 6);
  CHECK(facts.units == 3);
  samples::Recorder recorder({});
  recorder.add(facts);
  recorder.close(1);
  CHECK(recorder.statistics().points.at(0).loss == Approx(sum / 6));
}

TEST_CASE("the views of a physical batch are made while the one before is computed") {
  for (const bool privacy : {true, false}) {
    Pictures task(6, {1, 3, 3}, 2);
    Settings settings{.privacy = privacy,
                      .epsilon = {},
                      .noise_multiplier = 1,
                      .steps = 2,
                      .batch = 6,
                      .train_size = 6};
    settings.memory.physical_batch = 4;
    const Data data = task.load(settings);
    const TemporaryFolder folder;
    Ledger ledger = Ledger::create(folder.path("ledger"));
    samples::Trainer trainer(task, settings, data, ledger, std::nullopt);
    trainer.step().value();
    trainer.step().value();
    // The first batch of a step is made ahead where its rows are known: in ordinary training.
    CHECK(trainer.prefetched_batches() == (privacy ? 4 : 5));
  }
}
