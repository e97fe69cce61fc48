// The models of the samples by name, with random inputs: for programs that measure any of them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nn/layers.h"

namespace sotto::models {

// Random samples [n, ...input] and their labels.
struct Examples {
  Tensor inputs, labels;
};

struct Entry {
  const char* name;
  const char* description;
  std::function<std::unique_ptr<nn::Module>()> make;
  Shape input;                // shape of one sample
  std::int64_t classes = 0;   // logits are [n, classes]; 1: one logit, for the second class
  std::int64_t words = 0;     // inputs are i64 ids below this; 0: floating-point
  bool per_position = false;  // logits are [n, t, classes], with a label for each position

  // Random samples, a function of the seed.
  Examples random_examples(std::int64_t n, std::uint64_t seed = 0) const;
  // The cross entropy of each sample, [n], averaged over its positions.
  Var losses(const Var& logits, const Tensor& labels) const;
};

const std::vector<Entry>& registry();
// "mnist, resnet50, ...", for help texts.
std::string model_names();
// Returns the entry of this name. Throws std::invalid_argument, listing the names and then
// `others`, when none has it.
const Entry& parse_entry(std::string_view name, std::string_view others = "");

}  // namespace sotto::models
