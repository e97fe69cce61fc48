// Interrupted engines: contents and permissions of training checkpoints, and refused checkpoints.
#include <cmath>
#include <filesystem>
#include <fstream>

#include "autograd/ops.h"
#include "dp/accounting/ledger_epsilon.h"
#include "dp/clipping/clipper.h"
#include "dp/engine/training_checkpoint.h"
#include "dp/engine/validation.h"
#include "dp/noise/correlated/strategy_optimization.h"
#include "nn/data/digits.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/state.h"
#include "tests/support/catch.h"
#include "tests/support/engine_training.h"
#include "tests/support/ledger_files.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

EngineOptions noisy(Sampling sampling = Sampling::poisson) {
  EngineOptions options = options_of(sampling);
  options.noise_multiplier = 1;
  return options;
}

// A training with a ledger file, and its checkpoint.
struct Run {
  explicit Run(EngineOptions given = noisy()) : options(std::move(given)) {}

  void save(const nn::MovingAverage* average = nullptr) {
    save_checkpoint(file, t.model, t.optimizer, engine, ledger, average);
  }
  bool load(Engine& into, nn::MovingAverage* average = nullptr) {
    return load_checkpoint(file, t.model, t.optimizer, into, average);
  }

  Place place;
  std::string file = place.path() + ".model";
  EngineOptions options;
  Training t;
  Ledger ledger = Ledger::create(place.path());
  Engine engine = t.engine(ledger, options);
};

TEST_CASE("a training checkpoint continues where it was written, with every sampling") {
  for (const Sampling sampling : all_samplings) {
    CAPTURE(name(sampling));
    const Place place;
    const std::string file = place.path() + ".model";
    EngineOptions options = options_of(sampling);
    options.target_epsilon = 5;
    std::vector<float> weights;
    double spent = 0;
    {
      Training t;
      Ledger ledger = Ledger::create(place.path(), header_for(sampling));
      Engine engine = t.engine(ledger, options);
      for (int k = 0; k < 5; ++k) engine.step(t.loss());
      save_checkpoint(file, t.model, t.optimizer, engine, ledger);
      weights = t.weights();
      spent = engine.epsilon();
    }
    Training t;
    Ledger ledger = Ledger::resume(place.path(), checkpoint_mark(file));
    Engine engine = t.engine(ledger, options);
    load_checkpoint(file, t.model, t.optimizer, engine);
    CHECK(t.weights() == weights);
    CHECK(engine.steps_made() == 5);
    CHECK(engine.epsilon() == spent);
    while (engine.can_step()) engine.step(t.loss());
    CHECK(engine.steps_made() == steps);
    CHECK(ledger.releases() == steps);
    CHECK(engine.epsilon() <= 5);
  }
}

TEST_CASE("a ledger ahead of the checkpoint begins a new epoch, and no plan continues") {
  for (const Sampling sampling : {Sampling::balls_and_bins, Sampling::planned}) {
    const Place place;
    const std::string file = place.path() + ".model";
    EngineOptions options = options_of(sampling);
    options.noise_multiplier = 2;
    {
      Training t;
      Ledger ledger = Ledger::create(place.path(), {}, 1);
      Engine engine = t.engine(ledger, options);
      engine.step(t.loss());
      save_checkpoint(file, t.model, t.optimizer, engine, ledger);
      engine.step(t.loss());
    }
    Training t;
    const std::vector<float> fresh = t.weights();
    Ledger ledger = Ledger::resume(place.path(), checkpoint_mark(file));
    Engine engine = t.engine(ledger, options);
    const auto load = [&] { load_checkpoint(file, t.model, t.optimizer, engine); };
    if (sampling == Sampling::planned) {
      CHECK(throws(load,
                   "engine state: the plan of correlated noise stood at draw 1, and the "
                   "ledger has seen draws up to 2: a new plan must begin"));
      CHECK(t.weights() == fresh);
      CHECK(engine.steps_made() == 0);
      continue;
    }
    load();
    CHECK(engine.sampler().index_in_epoch() == 0);
    engine.step(t.loss());
    const EventCounts events = ledger.events();
    REQUIRE(events.size() == 2);
    CHECK_FALSE(events[0].first.paid);
    CHECK(events[0].second == 2);  // the lost epoch, and the new one
    CHECK(events[1].second == 1);
  }
}

TEST_CASE("a moving average goes on after a checkpoint as if there had been none") {
  Run run;
  Training& t = run.t;
  Training resumed;
  Engine again = resumed.engine(run.ledger, run.options);
  nn::MovingAverage average(t.model, 0.7), restored(resumed.model, 0.7);
  for (int k = 0; k < 3; ++k) {
    run.engine.step(t.loss());
    average.update();
  }
  run.save(&average);
  CHECK(throws([&] { load_checkpoint(run.file, resumed.model, resumed.optimizer, again); },
               "has a moving average"));
  CHECK(again.steps_made() == 0);
  load_checkpoint(run.file, resumed.model, resumed.optimizer, again, &restored);
  CHECK(restored.updates() == 3);
  run.engine.step(t.loss());  // noise is fresh, so both runs get the first one's update
  average.update();
  nn::set_parameters(resumed.model, nn::parameter_tensors(t.model), "the same update");
  restored.update();
  average.copy_to(t.model);
  restored.copy_to(resumed.model);
  CHECK(resumed.weights() == t.weights());

  run.save();
  CHECK(throws([&] { run.load(run.engine, &average); }, "has no moving average"));
  CHECK(average.updates() == 4);
}

TEST_CASE("a checkpoint is secret, and a model is weights and their privacy statement") {
  namespace fs = std::filesystem;
  Run run(noisy(Sampling::balls_and_bins));
  Training& t = run.t;
  run.engine.step(t.loss());
  // An old file that others may read is replaced by one that they may not.
  std::ofstream(run.file) << "old";
  fs::permissions(run.file,
                  fs::perms::owner_read | fs::perms::owner_write | fs::perms::others_read);
  run.save();
  CHECK(load_safetensors(run.file).metadata.contains(secret_key));
  CHECK(fs::status(run.file).permissions() == (fs::perms::owner_read | fs::perms::owner_write));

  const std::string published = run.place.path("published");
  save_model(published, t.model, run.engine.report());
  const TensorFile file = load_safetensors(published);
  CHECK(file.metadata ==
        std::map<std::string, std::string>{{"sotto.privacy", to_json(run.engine.report())}});
  CHECK(file.tensors.size() == t.model.parameters().size());
  CHECK((fs::status(published).permissions() & fs::perms::group_read) != fs::perms::none);
  Training other;
  nn::load_module(published, other.model);
  CHECK(other.weights() == t.weights());
}

TEST_CASE("a checkpoint of weights in another type is refused, as training would go on otherwise") {
  const Place place;
  const std::string file = place.path() + ".model";
  const Ledger ledger = Ledger::create(place.path());
  Training t, wide;
  wide.model.to(Dtype::f64);
  nn::Sgd plain(t.model, {.learning_rate = 0.1}), of_wide(wide.model, {.learning_rate = 0.1});
  Engine engine(t.model, plain, population, ledger, noisy()),
      again(wide.model, of_wide, population, ledger, noisy());
  engine.step(t.loss());
  save_checkpoint(file, t.model, plain, engine);
  CHECK(throws([&] { load_checkpoint(file, wide.model, of_wide, again); },
               "1.weight is f32 (10, 784) where f64 (10, 784) is needed"));
  CHECK(again.steps_made() == 0);
}

TEST_CASE("adaptive clip bounds are restored") {
  EngineOptions options = noisy();
  options.adaptive_clipping = AdaptiveClipping{.learning_rate = 0.5};
  Run run(options);
  for (int k = 0; k < 3; ++k) run.engine.step(run.t.loss());
  run.save();
  const double bound = run.engine.clipper().groups()[0].bound;
  CHECK(bound != 1);
  Engine other = run.t.engine(run.ledger, options);
  CHECK(run.load(other));
  CHECK(other.clipper().groups()[0].bound == bound);
}

TEST_CASE("a checkpoint with damaged tensors is refused, and one without a checksum is reported") {
  Run run;
  run.engine.step(run.t.loss());
  run.save();
  const std::string good = read(run.file);
  std::string bytes = good;
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write(run.file, bytes);
  Training fresh;
  const std::vector<float> weights = fresh.weights();
  CHECK(throws([&] { load_checkpoint(run.file, fresh.model, fresh.optimizer, run.engine); },
               "damaged"));
  CHECK(throws([&] { checkpoint_mark(run.file); }, "damaged"));
  CHECK(fresh.weights() == weights);
  bytes = good;
  bytes[bytes.find("sotto.xxh64")] = 'S';
  write(run.file, bytes);
  CHECK_FALSE(run.load(run.engine));
}

TEST_CASE("a state of another engine, and a file that is no checkpoint, change nothing") {
  Run run;
  Training& t = run.t;
  run.engine.step(t.loss());
  run.save();
  const auto refused = [&](const EngineOptions& other, const std::string& text) {
    Engine wrong = t.engine(run.ledger, other);
    return throws([&] { run.load(wrong); }, text) && wrong.steps_made() == 0;
  };
  EngineOptions other = run.options;
  other.noise_multiplier = 2;
  CHECK(refused(other, "engine state: the noise multiplier would be 2 and was 1"));
  other = run.options;
  other.groups = layer_groups(t.model.named_parameters(), 1);
  other.groups.push_back(other.groups[0]);
  other.groups[0].parameters.resize(1);
  other.groups[1].parameters.erase(other.groups[1].parameters.begin());
  CHECK(refused(other, "engine state: 1 clip bounds for 2 groups"));
  other = run.options;
  other.logical_batch = 40;
  CHECK(refused(other, "Sampler: "));
  nn::save_module(run.file, t.model);
  CHECK(throws([&] { checkpoint_mark(run.file); }, "has no sotto.ledger_mark"));
  CHECK(throws([&] { run.load(run.engine); }, "engine state: the metadata has no sotto.engine"));
  CHECK(run.engine.steps_made() == 1);
}

TEST_CASE("a state that lacks a member is refused") {
  Run run;
  run.engine.step(run.t.loss());
  run.save();
  const TensorFile file = load_safetensors(run.file);
  for (const std::string name :
       {"facts", "data", "means_released", "loss_scale", "good_steps", "epoch"}) {
    TensorFile without = file;
    std::string& text = without.metadata.at("sotto.engine");
    text.replace(text.find('"' + name + '"') + 1, name.size(), "x");
    save_safetensors(run.file, without);
    CHECK(throws([&] { run.load(run.engine); }, "engine state: no " + name));
  }
}

TEST_CASE("a checkpoint of another model changes nothing") {
  Run run;
  nn::MovingAverage average(run.t.model, 0.7);
  run.engine.step(run.t.loss());
  average.update();
  run.save(&average);
  TensorFile file = load_safetensors(run.file);
  for (auto& [name, tensor] : file.tensors) {
    if (name.starts_with("model.") && tensor.shape() == Shape{10})
      tensor = Tensor::from(std::vector<float>(11), {11});
  }
  save_safetensors(run.file, file);

  Training other;
  Engine engine = other.engine(run.ledger, run.options);
  nn::MovingAverage untouched(other.model, 0.7);
  const auto state = [&] { return other.optimizer.state(other.model.named_parameters()).size(); };
  const std::size_t before = state();
  const std::vector<float> weights = other.weights();
  CHECK(throws([&] { load_checkpoint(run.file, other.model, other.optimizer, engine, &untouched); },
               "11"));
  CHECK(engine.steps_made() == 0);
  CHECK(untouched.updates() == 0);
  CHECK(state() == before);
  CHECK(other.weights() == weights);
}

TEST_CASE("a checkpoint needs a ledger in a file, from which it can go on") {
  const Place place;
  Training t;
  Ledger ledger;
  const Engine engine = t.engine(ledger, noisy());
  const std::string file = place.path("none");
  CHECK(throws([&] { save_checkpoint(file, t.model, t.optimizer, engine); },
               "a mark of a ledger in memory"));
  CHECK_FALSE(std::filesystem::exists(file));
}

}  // namespace
}  // namespace sotto
