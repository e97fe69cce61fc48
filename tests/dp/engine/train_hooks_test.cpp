// The rate's schedule, the average, evaluations, learners and observers of train(), and ordinary
// training.
#include <filesystem>

#include "dp/engine/training_checkpoint.h"
#include "dp/engine/training_run.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/optim/moving_average.h"
#include "nn/optim/schedule.h"
#include "tests/support/catch.h"
#include "tests/support/engine_training.h"
#include "tests/support/ledger_files.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

// Without noise and with all units in each batch, training is deterministic.
TrainOptions exact(std::int64_t planned) {
  return {.engine = {.noise_multiplier = 0,
                     .delta = 1e-4,
                     .steps = planned,
                     .sampling = Sampling::full_batch,
                     .logical_batch = population}};
}

const nn::CrossEntropyLoss loss;

// Counts steps, and multiplies the rate of each.
class Halving final : public Learner {
 public:
  explicit Halving(nn::Optimizer& optimizer) : optimizer_(optimizer) {}
  void begin_step(std::int64_t step, const Engine* engine) override {
    CHECK(step == steps_);
    private_ = engine != nullptr;
    optimizer_.set_learning_rate(0.1 / static_cast<double>(1 + steps_));
  }
  void end_step(std::int64_t step) override { steps_ = step + 1; }
  Var losses(const Var& losses) override { return losses * 0.5; }
  std::map<std::string, Tensor> state() const override {
    return {{"steps", Tensor::from(std::vector<std::int64_t>{steps_}, {1})},
            {"weight", clone(optimizer_.parameters()[0]->value)}};
  }
  void load_state(const std::map<std::string, Tensor>& state) override {
    const auto found = state.find("steps");
    check(found != state.end(), "halving: no steps");
    steps_ = found->second.to_vector<std::int64_t>()[0];
    CHECK(state.at("weight").to_vector<float>() ==
          optimizer_.parameters()[0]->value.to_vector<float>());
  }
  std::int64_t steps() const { return steps_; }
  bool in_private_training() const { return private_; }

 private:
  nn::Optimizer& optimizer_;
  std::int64_t steps_ = 0;
  bool private_ = false;
};

// Stops before a step, and keeps a section in each checkpoint.
class Program final : public TrainingObserver {
 public:
  explicit Program(std::int64_t last) : last_(last) {}
  void begins(const TrainingRun& run, bool verified) override {
    run_ = &run;
    resumed_ = verified;
  }
  bool goes_on() override { return run_->steps_made() < last_; }
  void stepped(const StepReport& report) override { rows += report.statistics->rows; }
  void save(const std::string& path, const TensorFile& checkpoint) override {
    TensorFile file = checkpoint;
    file.metadata[program_key] = "step " + std::to_string(run_->steps_made());
    save_safetensors(path, file);
  }
  void failed(const SystemFailure& failure) override {
    throw SystemFailure(std::string(failure.what()) + ", said the program");
  }
  void ends() override { ended = true; }
  bool resumed() const { return resumed_; }

  std::int64_t rows = 0;
  bool ended = false;

 private:
  std::int64_t last_;
  const TrainingRun* run_ = nullptr;
  bool resumed_ = false;
};

void train_without_privacy(Training& t, const TrainOptions& options) {
  train(t.model, t.optimizer, t.data, NoPrivacy{}, options, loss);
}

}  // namespace

TEST_CASE("the rate follows its schedule, and evaluations see averaged weights") {
  Training t, by_hand, in_private;
  const auto schedule = nn::Schedule::linear(1, 0, 5);
  std::map<std::int64_t, std::vector<float>> seen, expected;
  const auto hooked = [&](Training& of, nn::MovingAverage& average) {
    TrainOptions options = exact(5);
    options.schedule = schedule;
    options.average = &average;
    options.evaluate_every = 2;
    options.evaluate = [&](std::int64_t step) { seen[step] = of.weights(); };
    return options;
  };
  nn::MovingAverage average(t.model, 0.5), own(by_hand.model, 0.5), third(in_private.model, 0.5);
  train_without_privacy(t, hooked(t, average));
  const TrainOptions plain = exact(5);
  const TrainLoss same = loss;
  TrainingRun run(by_hand.model, by_hand.optimizer, by_hand.data, NoPrivacy{}, plain, same);
  for (std::int64_t step = 0; step < 5; ++step) {
    by_hand.optimizer.follow(schedule, step);
    run.step();
    own.update();
    nn::MovingAverage::Scope scope(own);
    if (step % 2 == 1 || step == 4) expected[step + 1] = by_hand.weights();
  }
  CHECK(seen == expected);
  CHECK(t.weights() == by_hand.weights());
  seen.clear();
  train(in_private.model, in_private.optimizer, in_private.data, Ledger(),
        hooked(in_private, third), loss);
  CHECK(seen.size() == 3);
  CHECK(third.updates() == 5);
}

TEST_CASE("private training without noise makes the steps of ordinary training") {
  Training t, ordinary;
  TrainOptions options = exact(3);
  options.engine.clip_bound = 1e6;
  options.schedule = nn::Schedule::cosine(3);
  train(t.model, t.optimizer, t.data, Ledger(), options, loss);
  train_without_privacy(ordinary, options);
  const std::vector<float> got = t.weights(), expected = ordinary.weights();
  for (std::size_t k = 0; k < got.size(); ++k) CHECK(got[k] == Approx(expected[k]).margin(1e-5));
}

TEST_CASE("a training that was stopped goes on with its average and learner, private or not") {
  for (const bool privacy : {true, false}) {
    CAPTURE(privacy);
    const Place place;
    TrainOptions options = exact(6);
    const auto make = [&](Training& t, nn::MovingAverage& average, Halving& learner,
                          const std::string& save, TrainingObserver* observer) {
      options.average = &average;
      options.learner = &learner;
      options.save = save;
      options.observer = observer;
      if (privacy && save.empty()) {
        train(t.model, t.optimizer, t.data, Ledger(), options, loss);
      } else if (privacy) {
        train(t.model, t.optimizer, t.data, place.path(), options, loss);
      } else {
        train_without_privacy(t, options);
      }
    };
    Training whole, half, rest;
    nn::MovingAverage of_whole(whole.model, 0.9), of_half(half.model, 0.9),
        of_rest(rest.model, 0.9);
    Halving first(whole.optimizer), second(half.optimizer), third(rest.optimizer);
    make(whole, of_whole, first, "", nullptr);
    CHECK(first.in_private_training() == privacy);
    Program stopping(3), going_on(100);
    const std::string state = place.path("state");
    make(half, of_half, second, state, &stopping);
    CHECK(checkpoint_program(state) == "step 3");
    CHECK(stopping.ended);
    CHECK_FALSE(stopping.resumed());
    CHECK(stopping.rows == 3 * population);
    make(rest, of_rest, third, state, &going_on);
    CHECK(going_on.resumed());
    CHECK(third.steps() == 6);
    CHECK(rest.weights() == whole.weights());
    of_whole.copy_to(whole.model);
    of_rest.copy_to(rest.model);
    CHECK(rest.weights() == whole.weights());
  }
}

TEST_CASE("a checkpoint goes on in the kind of training that wrote it alone") {
  const Place place;
  Training t;
  TrainOptions options = exact(2);
  options.save = place.path("ordinary");
  train_without_privacy(t, options);
  CHECK(load_safetensors(options.save).metadata.contains(secret_key));
  CHECK(throws([&] { train(t.model, t.optimizer, t.data, place.path(), options, loss); },
               "has no sotto.ledger_mark"));
  CHECK_FALSE(std::filesystem::exists(place.path()));
  options.save = place.path("private");
  train(t.model, t.optimizer, t.data, place.path(), options, loss);
  CHECK(throws([&] { train_without_privacy(t, options); },
               "ordinary training: the metadata has no sotto.ordinary_steps"));
}

TEST_CASE("a learner's state needs a learner, and its own") {
  const Place place;
  Training t;
  Halving learner(t.optimizer);
  TrainOptions options = exact(2);
  options.save = place.path("state");
  options.learner = &learner;
  train(t.model, t.optimizer, t.data, place.path(), options, loss);
  options.learner = nullptr;
  CHECK(throws([&] { train(t.model, t.optimizer, t.data, place.path(), options, loss); },
               "has the state of a learner"));
  options.save = place.path("other");
  options.engine.noise_multiplier = 1;
  train(t.model, t.optimizer, t.data, place.path("ledger"), options, loss);
  options.learner = &learner;
  CHECK(throws([&] { train(t.model, t.optimizer, t.data, place.path("ledger"), options, loss); },
               "halving: no steps"));
}

TEST_CASE("a failure of a file reaches the observer, and standardising needs privacy") {
  const Place place;
  Training t;
  Program program(100);
  TrainOptions options = exact(3);
  options.observer = &program;
  options.evaluate_every = 1;
  options.evaluate = [](std::int64_t) { throw SystemFailure("the disk is full"); };
  CHECK(throws<SystemFailure>([&] { train(t.model, t.optimizer, t.data, Ledger(), options, loss); },
                              "the disk is full, said the program"));
  options = exact(3);
  options.standardize.emplace();
  CHECK(throws([&] { train_without_privacy(t, options); }, "needs privacy"));
}

}  // namespace sotto
