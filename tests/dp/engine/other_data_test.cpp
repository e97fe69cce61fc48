// Engines that go on from a checkpoint with other data than its own.
#include "dp/engine/training_checkpoint.h"
#include "tests/support/catch.h"
#include "tests/support/engine_training.h"
#include "tests/support/ledger_files.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

enum class Data { same, shuffled, one_changed };

Dataset data_of(const Dataset& data, Data which) {
  if (which == Data::same) return data;
  std::vector<std::int64_t> rows(population);
  for (std::int64_t k = 0; k < population; ++k) rows[static_cast<std::size_t>(k)] = k;
  if (which == Data::shuffled) std::swap(rows[3], rows[70]);
  if (which == Data::one_changed) rows[3] = 70;
  return data.batch(rows);
}

// Saves after some steps, then goes on with other data, and returns what the engine tells.
std::vector<std::string> resumed(Sampling sampling, std::int64_t made, Data which,
                                 bool crashed = false) {
  const Place place;
  const std::string file = place.path("state");
  EngineOptions options = options_of(sampling);
  options.noise_multiplier = 2;
  {
    Training t;
    Engine engine(t.model, t.optimizer, t.data, Ledger::create(place.path(), header_for(sampling)),
                  options);
    t.step(engine, made);
    save_checkpoint(file, t.model, t.optimizer, engine);
    if (crashed) t.step(engine);
  }
  Training t;
  const Dataset data = data_of(t.data, which);
  Engine engine(t.model, t.optimizer, data, Ledger::resume(place.path(), checkpoint_mark(file)),
                options);
  load_checkpoint(file, t.model, t.optimizer, engine);
  engine.step(loss_of(data, t.model));
  return engine.changes();
}

const std::vector<std::string> told{"the data are not those of the checkpoint"};

}  // namespace

TEST_CASE("other data are refused within an epoch that is charged once, and within a plan") {
  for (const Sampling sampling : {Sampling::partition, Sampling::balls_and_bins, Sampling::planned,
                                  Sampling::cyclic_poisson}) {
    CAPTURE(name(sampling));
    CHECK(resumed(sampling, 1, Data::same).empty());
    for (const Data which : {Data::shuffled, Data::one_changed})
      CHECK(throws([&] { resumed(sampling, 1, which); }, "the data are not those of the"));
  }
}

TEST_CASE("other data are told where each batch is drawn anew") {
  for (const Data which : {Data::shuffled, Data::one_changed}) {
    CHECK(resumed(Sampling::poisson, 1, which) == told);
    CHECK(resumed(Sampling::partition, 4, which) == told);        // between epochs
    CHECK(resumed(Sampling::partition, 1, which, true) == told);  // a new epoch begins
    CHECK(resumed(Sampling::balls_and_bins, 0, which) == told);
  }
}

TEST_CASE("units are part of the data") {
  const Place place;
  const std::string file = place.path("state");
  EngineOptions options = options_of(Sampling::partition);
  options.noise_multiplier = 2;
  options.unit = "one writer";
  const LedgerHeader header{.unit = options.unit, .relation = NeighboringRelation::replace_one};
  const auto with_units = [](Dataset data, std::int64_t shift) {
    for (std::int64_t k = 0; k < population; ++k) data.units.push_back((k + shift) % population);
    return data;
  };
  {
    Training t;
    Engine engine(t.model, t.optimizer, with_units(t.data, 0), Ledger::create(place.path(), header),
                  options);
    t.step(engine);
    save_checkpoint(file, t.model, t.optimizer, engine);
  }
  Training t;
  Engine engine(t.model, t.optimizer, with_units(t.data, 1),
                Ledger::resume(place.path(), checkpoint_mark(file)), options);
  CHECK(throws([&] { load_checkpoint(file, t.model, t.optimizer, engine); }, "the data are not"));
}

}  // namespace sotto
