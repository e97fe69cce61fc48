// Rows with wrong labels get small weights from a second network, which learns from clean rows,
// without privacy (docs/how-to/reweight-rows.md).
#include <cstdio>

#include <sotto/sotto.h>

using namespace sotto;
namespace ml = multilevel;

namespace {

double trained(const Dataset& noisy, const Dataset& clean, const Dataset& test, double rate) {
  nn::manual_seed(2);
  nn::Sequential model{nn::Flatten(), nn::Linear(784, 64), nn::Tanh(), nn::Linear(64, 10)};
  nn::Sequential weigher{nn::Linear(1, 20), nn::Relu(), nn::Linear(20, 1), nn::Sigmoid()};
  nn::Sgd model_step(model, {.learning_rate = 0.01, .momentum = 0.9});
  nn::Adam weigher_step(weigher, {.learning_rate = rate});
  // LEVELS
  const auto losses_of = [&](const Dataset& data) {
    return [&](ml::Pass& pass) {
      const Dataset batch = data.batch(pass.rows);
      return cross_entropy(model(pass.tape.input(batch.inputs)), batch.targets);
    };
  };
  const auto weights = [&](ml::Pass&, const Var& losses) {
    return squeeze(weigher(unsqueeze(losses, 1)), 1);
  };
  ml::Levels levels(
      {{.name = "model",
        .variables = model,
        .optimizer = model_step,
        .loss = losses_of(noisy),
        .weights = weights,
        .batches = ml::shuffled_batches(noisy.size(), 100, /*seed=*/1),
        .response = ml::row_slopes()},
       {.name = "weigher",
        .variables = weigher,
        .optimizer = weigher_step,
        .loss = losses_of(clean),
        .batches = ml::shuffled_batches(clean.size(), 100, /*seed=*/2)}},
      {.upper_to_lower = {{"weigher", "model"}}, .lower_to_upper = {{"model", "weigher"}}});
  levels.run(1500);
  // LEVELS
  return nn::accuracy(model, test);
}

}  // namespace

int main() {
  Dataset noisy = make_digits(60000, /*seed=*/1);
  const Dataset clean = make_digits(1000, 1, /*first=*/60000), test = make_digits(1000, 1, 70000);
  auto* labels = noisy.targets.data<std::int64_t>();
  for (std::int64_t k = 0; k < noisy.size(); ++k)
    if (k % 20 < 8) labels[k] = (labels[k] + 1) % 10;
  std::printf("equal weights: %.2f of the test set are right\n", trained(noisy, clean, test, 0));
  std::printf("learned weights: %.2f\n", trained(noisy, clean, test, 0.01));
}
