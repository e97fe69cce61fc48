// A first program: data from arrays, a model, and private training that can be interrupted at any
// time and continues when the program is started again.
#include <cstdio>
#include <random>

#include <sotto/sotto.h>

using namespace sotto;
using namespace sotto::nn;

int main() {
  constexpr std::int64_t n = 5000;  // points of the plane, labelled: inside a circle or not
  std::vector<float> points;
  std::vector<std::int64_t> inside;
  std::mt19937 random(1);
  for (int k = 0; k < n; ++k) {
    const float x = random() / 2e9f - 1, y = random() / 2e9f - 1;
    points.insert(points.end(), {x, y});
    inside.push_back(x * x + y * y < 0.6f ? 1 : 0);
  }
  const Dataset data{.inputs = Tensor::from(points, {n, 2}), .targets = Tensor::from(inside, {n})};
  const auto [training, test] = data.split(0.8, /*seed=*/1);

  TrainOptions options{.engine = {.target_epsilon = 3, .steps = 1000}, .save = "circle.state"};
  const Suggestion first = suggest(options.engine, training.size());
  options.engine.logical_batch = first.logical_batch;
  options.engine.clip_bound = first.clip_bound;

  Sequential model{Linear(2, 32), Tanh(), Linear(32, 2)};
  Sgd optimizer(model, {.learning_rate = first.learning_rate});
  const PrivacyStatement statement =
      train(model, optimizer, training, "circle.ledger", options, CrossEntropyLoss{});
  save_model("circle.safetensors", model, statement);
  std::printf("accuracy %.3f, epsilon %.3f\n", accuracy(model, test), statement.epsilon);
}
