// What a level over private rows may not do, refused when it is built.
#include "autograd/sink.h"
#include "dp/accounting/ledger_epsilon.h"
#include "dp/clipping/sample_values.h"
#include "nn/optim/optimizer.h"
#include "tests/support/catch.h"
#include "tests/support/engine_training.h"
#include "tests/support/throws.h"

namespace sotto {

TEST_CASE("no direction is made of private rows without noise: their tape has no sum for it") {
  Training t;
  Tape tape({.private_data = true});
  const Dataset batch = t.data.slice(0, 4);
  const Var losses = cross_entropy(t.model(tape.input(batch.inputs)), batch.targets);
  SumSink sums;
  CHECK_THROWS_AS(tape.backward(losses, sums), std::invalid_argument);
  CHECK(throws([&] { mean(losses); }, "sample"));
}

TEST_CASE("weights that are normalised over a batch are refused in a private step") {
  Training t;
  Engine engine = t.engine(Ledger(), {.noise_multiplier = 1, .steps = 2, .logical_batch = 20});
  const auto normalised = [&](Tape& tape, std::span<const std::int64_t> rows) {
    const Dataset batch = t.data.batch(rows);
    const Var losses = cross_entropy(t.model(tape.input(batch.inputs)), batch.targets);
    const Var weights = detach(losses);
    tape.set_sample_weights(weights / sum(weights));
    return losses;
  };
  CHECK_THROWS_AS(engine.step(normalised), std::invalid_argument);
  CHECK(engine.ledger().releases() == 0);
}

TEST_CASE("an upper level over other private rows needs a ledger of its own") {
  Training lower, upper;
  Ledger ledger;
  const EngineOptions options{.noise_multiplier = 1, .steps = 2, .logical_batch = 20};
  Engine below(lower.model, lower.optimizer, population, ledger, options);
  CHECK(throws(
      [&] { Engine(upper.model, upper.optimizer, population / 2, ledger.new_run(), options); },
      "a population of 60, where an earlier run said 120: one ledger is about one data set"));
  Engine above(upper.model, upper.optimizer, population / 2, Ledger(), options);
  lower.step(below);
  CHECK(above.epsilon() == 0);
}

}  // namespace sotto
