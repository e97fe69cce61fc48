// Two private steps with the library as its users see it.
#include <cstdio>

#include <sotto/sotto.h>

int main() {
  using namespace sotto;
  const Dataset digits = make_digits(64, 1);
  nn::Sequential model{nn::Flatten(), nn::Linear(784, 10)};
  nn::Sgd optimizer(model, {.learning_rate = 0.1});
  Ledger ledger;
  Engine engine(model, optimizer, digits.size(), ledger,
                {.noise_multiplier = 1, .steps = 2, .logical_batch = 16});
  while (engine.can_step()) {
    engine.step([&](Tape& tape, std::span<const std::int64_t> rows) {
      const Dataset batch = digits.batch(rows);
      return cross_entropy(model(tape.input(batch.inputs)), batch.targets);
    });
  }
  std::printf("epsilon %.3f\n", engine.epsilon());
  return engine.epsilon() > 0 ? 0 : 1;
}
