// Trains sotto-mnist's network by the library's train(), as mnist_exchange.py asks: own_program
// NAME STEPS. It continues from NAME.state if that is there, and prints the steps made, the epsilon
// and what train() tells.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "dp/engine/train.h"
#include "nn/data/digits.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/optim/optimizer.h"
#include "samples/models/models.h"

using namespace sotto;

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string name = argv[1];
  constexpr std::uint64_t seed = 5;
  const Dataset data = make_digits(600, seed, 40);
  nn::manual_seed(seed);
  models::MnistNetwork model("tanh");
  nn::Sgd optimizer(model, {.learning_rate = 0.5, .momentum = 0.9});
  std::int64_t made = 0;
  TrainOptions options{.engine = {.noise_multiplier = 2,
                                  .steps = std::atoi(argv[2]),
                                  .logical_batch = 64,
                                  .clip_bound = 0.1,
                                  .seed = seed},
                       .save = name + ".state",
                       .tell = [](const std::string& line) { std::printf("%s\n", line.c_str()); }};
  try {
    const PrivacyStatement statement =
        train(model, optimizer, data, name + ".ledger", options, nn::CrossEntropyLoss{},
              [&](const StepReport& report, const Engine&) {
                made = report.step;
                return true;
              });
    std::printf("step %lld, epsilon %.6f\n", static_cast<long long>(made), statement.epsilon);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "own_program: %s\n", error.what());
    return 1;
  }
}
