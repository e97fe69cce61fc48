// The networks whose training steps are timed: the six workloads that the literature on private
// training compares by (Subramani, Vadivelu, Kamath 2021), and four larger ones of today's kinds.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sotto/nn/layers.h"

namespace sotto {

struct Workload {
  std::string name;
  std::function<std::unique_ptr<nn::Module>()> make;
  Shape input;                  // of a sample
  std::int64_t vocabulary = 0;  // above 0: the input is ids below it
  std::int64_t classes = 2;     // 1: logistic regression, by one logit
  bool per_position = false;    // a class for each position of [n, t, classes]

  // Random inputs, f32 or ids, and random targets.
  struct Batch {
    Tensor inputs;
    Tensor targets;
  };
  Batch random_batch(std::int64_t samples, std::uint64_t seed) const;
  // One loss for each sample, [n]: cross entropy, averaged over positions.
  Var losses(const Var& logits, const Tensor& targets) const;
};

// logreg, ffnn, mnist, cifar10, embed, lstm; resnet18, wrn16, vit, gpt2.
const std::vector<Workload>& workloads();

}  // namespace sotto
