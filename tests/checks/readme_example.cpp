// The README's example, between the marks, as a test: it must build, run and spend what it says.
// README
#include <cstdio>

#include <sotto/sotto.h>

using namespace sotto;

int main() {
  const Dataset digits = make_digits(2000, /*seed=*/1);
  nn::Sequential model{nn::Conv2d(1, 8, 5, {.stride = {2}}), nn::Tanh(), nn::MaxPool2d(2),
                       nn::Flatten(), nn::Linear(288, 10)};
  nn::Sgd optimizer(model, {.learning_rate = 1, .momentum = 0.9});
  Ledger ledger;
  Engine engine(
      model, optimizer, digits.size(), ledger,
      {.target_epsilon = 3, .delta = 1e-5, .steps = 20, .logical_batch = 200, .clip_bound = 0.1});
  while (engine.can_step()) {
    const StepReport report = engine.step([&](Tape& tape, std::span<const std::int64_t> rows) {
      const Dataset batch = digits.batch(rows);
      return cross_entropy(model(tape.input(batch.inputs)), batch.targets);
    });
    std::printf("step %2d: epsilon %.3f\n", static_cast<int>(report.step), engine.epsilon());
  }
}
// README
