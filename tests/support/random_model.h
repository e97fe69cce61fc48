// Random models, on which this promise is tested: any model of sample-independent operations trains
// privately and exactly.
//
// A plan is a list of seeds, one per step. A step makes its decisions from its own seed and from
// its input's shape. A step can therefore be left out, and the others still form a model: this
// shrinks a failing model to a small one.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "autograd/parameter.h"
#include "autograd/tape.h"

namespace sotto {

struct ModelPlan {
  std::uint64_t seed = 0;  // of the input
  std::vector<std::uint64_t> steps;
  std::int64_t samples = 0;
};

// A plan of up to 30 steps and 5 samples, from one number.
ModelPlan random_plan(std::uint64_t seed);

class ModelRun;

class RandomModel {
 public:
  explicit RandomModel(const ModelPlan& plan);

  // The inputs, samples first; f64, or i64 ids.
  const Tensor& inputs() const { return inputs_; }
  // One loss per sample of x, a batch like inputs(). With `cut`, some steps are checkpointed
  // segments, which may be nested; backward must run before the next loss.
  Var loss(Tape& tape, const Tensor& x, bool cut = false);
  std::deque<Parameter>& parameters() { return parameters_; }
  // The steps in words, one per line.
  std::string description() const;

 private:
  friend class ModelRun;
  ModelPlan plan_;
  Tensor inputs_;
  std::deque<Parameter> parameters_;
  std::vector<std::string> words_;
  std::shared_ptr<ModelRun> run_;  // referenced by segments
};

}  // namespace sotto
