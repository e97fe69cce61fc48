// The engine interrupted: what checkpoints hold, whom they are for, and what is refused.
#include <cmath>
#include <filesystem>
#include <fstream>

#include "catch.h"
#include "engine_training.h"
#include "ledger_files.h"
#include "sotto/autograd/ops.h"
#include "sotto/core/atomic_file.h"
#include "sotto/dp/checkpoint.h"
#include "sotto/dp/noise_search.h"
#include "sotto/dp/spent.h"
#include "sotto/dp/validation.h"
#include "sotto/nn/digits.h"
#include "sotto/nn/init.h"
#include "sotto/nn/layers.h"
#include "sotto/nn/state.h"
#include "throws.h"

namespace sotto {
namespace {

TEST_CASE("a checkpoint goes on where it was, with every sampling") {
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

TEST_CASE("a ledger ahead of the checkpoint begins a new pass, and no plan goes on") {
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
    CHECK(engine.sampler().place() == 0);
    engine.step(t.loss());
    const EventCounts events = ledger.events();
    REQUIRE(events.size() == 2);
    CHECK_FALSE(events[0].first.paid);
    CHECK(events[0].second == 2);  // the pass that was lost, and the new one
    CHECK(events[1].second == 1);
  }
}

TEST_CASE("a moving average goes on after a checkpoint as if there had been none") {
  const Place place;
  const std::string file = place.path() + ".model";
  EngineOptions options = options_of(Sampling::poisson);
  options.noise_multiplier = 1;
  Training t, resumed;
  Ledger ledger = Ledger::create(place.path());
  Engine engine = t.engine(ledger, options), again = resumed.engine(ledger, options);
  nn::MovingAverage average(t.model, 0.7), restored(resumed.model, 0.7);
  for (int k = 0; k < 3; ++k) {
    engine.step(t.loss());
    average.update();
  }
  save_checkpoint(file, t.model, t.optimizer, engine, ledger, &average);
  CHECK(throws([&] { load_checkpoint(file, resumed.model, resumed.optimizer, again); },
               "has a moving average"));
  CHECK(again.steps_made() == 0);
  load_checkpoint(file, resumed.model, resumed.optimizer, again, &restored);
  CHECK(restored.updates() == 3);
  engine.step(t.loss());  // noise is fresh: both runs get the same update
  average.update();
  nn::set_parameters(resumed.model, nn::parameter_tensors(t.model), "the same update");
  restored.update();
  average.copy_to(t.model);
  restored.copy_to(resumed.model);
  CHECK(resumed.weights() == t.weights());

  save_checkpoint(file, t.model, t.optimizer, engine, ledger);
  CHECK(throws([&] { load_checkpoint(file, t.model, t.optimizer, engine, &average); },
               "has no moving average"));
  CHECK(average.updates() == 4);
}

TEST_CASE("a checkpoint is secret, and a model is weights and what is promised of them") {
  namespace fs = std::filesystem;
  const Place place;
  const std::string secret = place.path() + ".state", published = place.path() + ".model";
  EngineOptions options = options_of(Sampling::balls_and_bins);
  options.noise_multiplier = 1;
  Training t;
  Ledger ledger = Ledger::create(place.path());
  Engine engine = t.engine(ledger, options);
  engine.step(t.loss());
  // As it was when everybody could read it.
  std::ofstream(secret) << "old";
  fs::permissions(secret, fs::perms::owner_read | fs::perms::owner_write | fs::perms::others_read);
  save_checkpoint(secret, t.model, t.optimizer, engine, ledger);
  CHECK(load_safetensors(secret).metadata.contains(secret_key));
  CHECK(fs::status(secret).permissions() == (fs::perms::owner_read | fs::perms::owner_write));

  save_model(published, t.model, engine.report());
  const TensorFile file = load_safetensors(published);
  CHECK(file.metadata ==
        std::map<std::string, std::string>{{"sotto.privacy", to_json(engine.report())}});
  CHECK(file.tensors.size() == t.model.parameters().size());
  CHECK((fs::status(published).permissions() & fs::perms::group_read) != fs::perms::none);
  Training other;
  nn::load_module(published, other.model);
  CHECK(other.weights() == t.weights());
}

TEST_CASE("moving bounds are restored") {
  const Place place;
  const std::string file = place.path() + ".model";
  EngineOptions options = options_of(Sampling::poisson);
  options.noise_multiplier = 1;
  options.adaptive_clipping = AdaptiveClipping{.learning_rate = 0.5};
  Training t;
  Ledger ledger = Ledger::create(place.path());
  Engine engine = t.engine(ledger, options);
  for (int k = 0; k < 3; ++k) engine.step(t.loss());
  save_checkpoint(file, t.model, t.optimizer, engine, ledger);
  const double bound = engine.clipper().groups()[0].bound;
  CHECK(bound != 1);
  Engine other = t.engine(ledger, options);
  CHECK(load_checkpoint(file, t.model, t.optimizer, other));
  CHECK(other.clipper().groups()[0].bound == bound);
}

TEST_CASE("a checkpoint whose tensors are damaged is refused, and one without a checksum is told") {
  const Place place;
  const std::string file = place.path() + ".model";
  EngineOptions options = options_of(Sampling::poisson);
  options.noise_multiplier = 1;
  Training t;
  Ledger ledger = Ledger::create(place.path());
  Engine engine = t.engine(ledger, options);
  engine.step(t.loss());
  save_checkpoint(file, t.model, t.optimizer, engine, ledger);
  const std::string good = read_file(file);
  const auto write = [&](const std::string& bytes) {
    std::ofstream(file, std::ios::binary) << bytes;
  };
  std::string bytes = good;
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write(bytes);
  const std::vector<float> weights = t.weights();
  CHECK(throws([&] { load_checkpoint(file, t.model, t.optimizer, engine); }, "damaged"));
  CHECK(throws([&] { checkpoint_mark(file); }, "damaged"));
  CHECK(t.weights() == weights);
  bytes = good;
  bytes[bytes.find("sotto.xxh64")] = 'S';
  write(bytes);
  CHECK_FALSE(load_checkpoint(file, t.model, t.optimizer, engine));
}

TEST_CASE("a state of another engine, and a file that is no checkpoint, change nothing") {
  const Place place;
  const std::string file = place.path() + ".model";
  EngineOptions options = options_of(Sampling::poisson);
  options.noise_multiplier = 1;
  Training t;
  Ledger ledger = Ledger::create(place.path());
  Engine engine = t.engine(ledger, options);
  engine.step(t.loss());
  save_checkpoint(file, t.model, t.optimizer, engine, ledger);
  const auto refused = [&](const EngineOptions& other, const std::string& text) {
    Engine wrong = t.engine(ledger, other);
    return throws([&] { load_checkpoint(file, t.model, t.optimizer, wrong); }, text) &&
           wrong.steps_made() == 0;
  };
  EngineOptions other = options;
  other.noise_multiplier = 2;
  CHECK(refused(other, "engine state: the noise multiplier would be 2 and was 1"));
  other = options;
  other.groups = layer_groups(t.model.named_parameters(), 1);
  other.groups.push_back(other.groups[0]);
  other.groups[0].parameters.resize(1);
  other.groups[1].parameters.erase(other.groups[1].parameters.begin());
  CHECK(refused(other, "engine state: 1 clip bounds for 2 groups"));
  other = options;
  other.logical_batch = 40;
  CHECK(refused(other, "Sampler: "));
  nn::save_module(file, t.model);
  CHECK(throws([&] { checkpoint_mark(file); }, "has no sotto.ledger_mark"));
  CHECK(throws([&] { load_checkpoint(file, t.model, t.optimizer, engine); },
               "engine state: the metadata has no sotto.engine"));
  CHECK(throws(
      [] {
        Training memory;
        Ledger none;
        EngineOptions plain = options_of(Sampling::poisson);
        plain.noise_multiplier = 1;
        Engine e = memory.engine(none, plain);
        save_checkpoint("unused", memory.model, memory.optimizer, e, none);
      },
      ""));
}

}  // namespace
}  // namespace sotto
