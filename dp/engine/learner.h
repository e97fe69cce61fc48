// A learner: it learns settings, such as the learning rate or weights of samples, beside a model in
// one training.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "autograd/var.h"
#include "core/tensor.h"

namespace sotto {

class Engine;

// Derive from it what learns, and give it to train() (TrainOptions::learner). It may look at public
// data and at whatever was released, such as the weights after a step, and at nothing else: then it
// costs no privacy. On several ranks every call is made on each of them, and must compute the same.
class Learner {
 public:
  virtual ~Learner() = default;
  // Called before step number `step`, from 0, which has not drawn its batch. The engine is null in
  // ordinary training.
  virtual void begin_step(std::int64_t /*step*/, const Engine* /*engine*/) {}
  // Called after that step.
  virtual void end_step(std::int64_t /*step*/) {}
  // The losses of a physical batch, [n], from those of the training's loss.
  virtual Var losses(const Var& losses) { return losses; }
  // What the learner must know to continue, for training checkpoints.
  virtual std::map<std::string, Tensor> state() const { return {}; }
  // Continues from state(), with model and optimizer as they were. Throws std::invalid_argument for
  // the state of another learner.
  virtual void load_state(const std::map<std::string, Tensor>& /*state*/) {}
};

}  // namespace sotto
