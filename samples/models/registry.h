// The models of the samples by name, with what to feed them: for programs that measure any of them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sotto/nn/layers.h>

namespace sotto::models {

// Random samples [n, ...input] and their labels.
struct Examples {
  Tensor inputs, labels;
};

struct Entry {
  const char* name;
  const char* description;
  std::function<std::unique_ptr<nn::Module>()> make;
  Shape input;                // of one sample
  std::int64_t classes = 0;   // logits are [n, classes]; 1: one logit, that of the second class
  std::int64_t words = 0;     // inputs are i64 ids below this; 0: numbers
  bool per_position = false;  // logits are [n, t, classes], for a label at each position

  // A function of the seed.
  Examples random_examples(std::int64_t n, std::uint64_t seed = 0) const;
  // The cross entropy of each sample, [n]; the mean over its positions.
  Var losses(const Var& logits, const Tensor& labels) const;
};

const std::vector<Entry>& registry();
// "mnist, resnet50, ...", for help texts.
std::string model_names();
// Throws std::invalid_argument, listing the names, and then the others that the caller knows, when
// there is none of this name.
const Entry& parse_entry(const std::string& name, const std::string& others = "");

}  // namespace sotto::models
