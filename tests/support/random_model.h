// Random models: what the promise "any model made of sample-independent operations trains
// privately, exactly" is checked on.
//
// A plan is a list of seeds, one for each step; a step decides from its own seed and from the shape
// it meets. So a step can be left out and the rest is still a model: that is how a failure is
// shrunk to a small one.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "autograd/tape.h"

namespace sotto {

struct ModelPlan {
  std::uint64_t seed = 0;  // of the input
  std::vector<std::uint64_t> steps;
  std::int64_t samples = 0;
};

// Up to 30 steps and 5 samples, from one number.
ModelPlan random_plan(std::uint64_t seed);

class ModelRun;

class RandomModel {
 public:
  explicit RandomModel(const ModelPlan& plan);

  // Samples first; f64, or i64 ids.
  const Tensor& inputs() const { return inputs_; }
  // One loss for each sample of x, a batch like inputs(). `cut` runs some of the steps again in
  // backward, in segments that may hold segments; backward comes before the next loss.
  Var loss(Tape& tape, const Tensor& x, bool cut = false);
  std::deque<Parameter>& parameters() { return parameters_; }
  // The steps in words, one a line.
  std::string description() const;

 private:
  friend class ModelRun;
  ModelPlan plan_;
  Tensor inputs_;
  std::deque<Parameter> parameters_;
  std::vector<std::string> words_;
  std::shared_ptr<ModelRun> run_;  // which segments refer to
};

}  // namespace sotto
