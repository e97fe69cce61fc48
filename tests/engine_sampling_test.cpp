// The engine with every sampler, with correlated noise, and interrupted.
#include <cmath>
#include <filesystem>
#include <fstream>

#include "catch.h"
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

constexpr std::int64_t population = 120;
constexpr std::int64_t steps = 9;

struct Training {
  Dataset data = (nn::manual_seed(1), make_digits(population, 1));  // before the model is made
  nn::Sequential model{nn::Flatten(), nn::Linear(784, 10)};
  nn::Sgd optimizer{model, {.learning_rate = 0.1, .momentum = 0.9}};

  Engine::Loss loss() {
    return [this](Tape& tape, std::span<const std::int64_t> rows) {
      const Dataset batch = data.batch(rows);
      return cross_entropy(model(tape.input(batch.inputs)), batch.targets);
    };
  }
  Engine engine(Ledger& ledger, const EngineOptions& options) {
    return Engine(model, optimizer, population, ledger, options);
  }
  std::vector<float> weights() { return model.parameters()[0]->value.to_vector<float>(); }
};

// Settings of each sampling with three or four batches to a pass.
EngineOptions options_of(Sampling sampling) {
  EngineOptions options{.steps = steps, .sampling = sampling, .logical_batch = 30};
  if (sampling == Sampling::full_batch) options.logical_batch = population;
  if (sampling == Sampling::truncated_poisson) options.largest_batch = 90;
  if (sampling == Sampling::balls_and_bins) options.accountant = AccountantKind::rdp;
  if (sampling == Sampling::cyclic_poisson) {
    options.groups_in_cycle = 4;
    options.logical_batch = 20;
  }
  if (sampling == Sampling::planned)
    options.noise_strategy =
        best_banded_toeplitz({.steps = steps, .participation = {.separation = 4}}, 3);
  return options;
}

LedgerHeader header_for(Sampling sampling) {
  const bool exchanged = sampling == Sampling::fixed_size || sampling == Sampling::partition;
  return {.relation = exchanged ? Relation::replace_one : Relation::add_or_remove_one};
}

constexpr Sampling all_samplings[] = {
    Sampling::full_batch, Sampling::poisson,        Sampling::truncated_poisson,
    Sampling::fixed_size, Sampling::partition,      Sampling::balls_and_bins,
    Sampling::planned,    Sampling::cyclic_poisson,
};

TEST_CASE("every sampling meets a target in its planned steps, by the ledger") {
  for (const Sampling sampling : all_samplings) {
    CAPTURE(name(sampling));
    Training t;
    Ledger ledger(header_for(sampling));
    EngineOptions options = options_of(sampling);
    options.target_epsilon = 5;
    Engine engine = t.engine(ledger, options);
    std::int64_t made = 0;
    for (; engine.can_step(); ++made) engine.step(t.loss());
    CHECK(made == steps);
    CHECK(ledger.releases() == steps);
    CHECK(engine.epsilon() <= 5);
    CHECK(engine.epsilon() > 4.99);
    CHECK(engine.epsilon() ==
          epsilon(ledger, 1e-5, new_accountant(options.accountant, header_for(sampling).relation)));
    for (const auto& [event, count] : ledger.events()) CHECK(event.sampling == sampling);
    CHECK(to_text(engine.report()).find("sampling: ") != std::string::npos);
  }
}

TEST_CASE(
    "a sampling without a proof for accountant and neighbours is refused with those that have") {
  Training t;
  const auto problems = [&](Sampling sampling, AccountantKind accountant, Relation relation) {
    EngineOptions options = options_of(sampling);
    options.noise_multiplier = 1;
    options.accountant = accountant;
    return engine_problems(t.model, t.optimizer, population, options, {.relation = relation});
  };
  const auto first =
      problems(Sampling::balls_and_bins, AccountantKind::pld, Relation::add_or_remove_one);
  REQUIRE(first.size() == 1);
  CHECK(first[0].find("no proof for balls_and_bins") != std::string::npos);
  CHECK(first[0].find("rdp has one") != std::string::npos);
  CHECK(problems(Sampling::fixed_size, AccountantKind::pld, Relation::add_or_remove_one).size() ==
        1);
  CHECK(problems(Sampling::partition, AccountantKind::rdp, Relation::add_or_remove_one).size() ==
        1);
  CHECK(problems(Sampling::partition, AccountantKind::rdp, Relation::replace_one).empty());
}

// Of more than 90 of 120 units at rate 1/4 there is no danger, of more than 29 there is.
TEST_CASE("a bound that takes delta is refused with the bound that would do, and that one trains") {
  Training t;
  for (const bool by_target : {true, false}) {
    EngineOptions options = options_of(Sampling::truncated_poisson);
    (by_target ? options.target_epsilon : options.noise_multiplier) = 2;
    for (const std::int64_t bound : {29, 45}) {  // below the mean, and above it
      options.largest_batch = bound;
      const auto all = engine_problems(t.model, t.optimizer, population, options);
      REQUIRE(all.size() == 1);
      CAPTURE(all[0]);
      const std::string would = "a bound of ";
      const std::size_t at = all[0].find(would);
      REQUIRE(at != std::string::npos);
      options.largest_batch = std::stoll(all[0].substr(at + would.size()));
      CHECK(options.largest_batch > bound);
      CHECK(options.largest_batch < 90);
      CHECK(engine_problems(t.model, t.optimizer, population, options).empty());
      Ledger ledger;
      Engine engine = t.engine(ledger, options);
      while (engine.can_step() && engine.steps_made() < steps) engine.step(t.loss());
      CHECK(engine.epsilon() < 3);  // and no absurd noise
      CHECK(engine.noise_multiplier() < 4);
      --options.largest_batch;
      CHECK(engine_problems(t.model, t.optimizer, population, options).size() == 1);
    }
  }
}

TEST_CASE("a bound that no batch passes is no problem, and one without privacy neither") {
  Training t;
  EngineOptions options = options_of(Sampling::truncated_poisson);
  options.noise_multiplier = 1e-3;  // e^epsilon is beyond every number
  const auto all = engine_problems(t.model, t.optimizer, population, options);
  REQUIRE(all.size() == 1);
  CHECK(all[0].find("a bound of 121 units would do") != std::string::npos);
  options.largest_batch = 121;
  CHECK(engine_problems(t.model, t.optimizer, population, options).empty());
  options.largest_batch = 10;
  options.noise_multiplier = 0;
  CHECK(engine_problems(t.model, t.optimizer, population, options).empty());
}

TEST_CASE("problems of samplings and correlated noise are told") {
  Training t;
  const auto problem = [&](const EngineOptions& options) {
    const auto all = engine_problems(t.model, t.optimizer, population, options);
    return all.size() == 1 ? all[0] : std::to_string(all.size()) + " problems";
  };
  EngineOptions plan = options_of(Sampling::planned);
  plan.noise_multiplier = 1;
  CHECK(problem(plan) == "0 problems");
  EngineOptions wrong = plan;
  wrong.noise_strategy.reset();
  CHECK(problem(wrong).find("planned batches need a noise_strategy") == 0);
  wrong = plan;
  wrong.steps = 8;
  CHECK(problem(wrong) == "a noise_strategy of 9 steps for 8 planned ones");
  wrong = plan;
  wrong.bound_schedule = nn::Schedule::exponential(0.9);
  CHECK(problem(wrong).find("a noise_strategy with clip bounds that move") == 0);
  wrong = plan;
  wrong.noise = GaussianNoise::floating_point;
  CHECK(problem(wrong) == "a noise_strategy with floating-point noise");
  wrong = plan;
  wrong.noise_schedule = nn::Schedule::exponential(0.9);
  CHECK(problem(wrong).find("a schedule of noise with planned batches") == 0);
  wrong = plan;
  wrong.loss_scaling.adjust = LossScaling::Adjust::on_release;
  CHECK(problem(wrong).find("a loss scale that moves on_release with a noise_strategy") == 0);
  wrong = options_of(Sampling::poisson);
  wrong.noise_multiplier = 1;
  wrong.noise_strategy = plan.noise_strategy;
  CHECK(problem(wrong).find("a noise_strategy with poisson batches") == 0);
  wrong = options_of(Sampling::poisson);
  wrong.noise_multiplier = 1;
  wrong.largest_batch = 50;
  CHECK(problem(wrong).find("make_sampler: 50 units at most in a batch of poisson") == 0);
}

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
