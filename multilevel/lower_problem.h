// What a response sees of the problem below.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "autograd/parameter.h"

namespace sotto {
class Var;
}

namespace sotto::multilevel {

struct Pass;
struct Problem;

// Tensors of a state, by their names.
using NamedTensors = std::map<std::string, Tensor>;

// Thrown where a gradient in f16 overflowed: the update that needs it is skipped.
struct GradientOverflow : std::runtime_error {
  GradientOverflow() : std::runtime_error("multilevel: a gradient in f16 overflowed") {}
};

// The problem below, while it is being solved: everything is at its parameters as they are now and
// on its last batch, with the same dropout masks in all passes.
class LowerProblem {
 public:
  virtual ~LowerProblem() = default;
  // As it was given to Levels.
  virtual const Problem& problem() const = 0;
  // The parameters that the optimizer holds.
  virtual const std::vector<Parameter*>& parameters() const = 0;
  // The gradient of the mean loss by parameters of any problem; zeros for those it does not read.
  virtual Gradients gradient(const std::vector<Parameter*>& by) = 0;
  // The rows' losses, times their weights.
  virtual Var loss(Pass& pass) const = 0;
  // Adds to `total`, for the rows of one physical batch.
  using AddRows = std::function<void(Pass& pass, Gradients& total)>;
  // The sum, for the parameters `by`, of what `add` adds for each physical batch, with `trainable`
  // alone trainable. Where `add` throws GradientOverflow on one rank, all ranks throw it. All ranks
  // call it.
  virtual Gradients sum_over_batch(const std::vector<Parameter*>& trainable,
                                   const std::vector<Parameter*>& by, const AddRows& add) = 0;
  // The number of rows of the last batch.
  virtual std::int64_t rows() const = 0;
  // The present loss scale; 1 unless in f16.
  virtual double loss_scale() const = 0;
  // The gradient of the last update, clipped, if the response keeps it (Response::keeps_gradient).
  virtual const Gradients& last_gradient() const = 0;
  // Optimizer::state(); a parameter's tensors begin with name_of() and a dot.
  virtual NamedTensors optimizer_state() const = 0;
  // The parameter's name in states. Throws std::invalid_argument for another problem's.
  virtual const std::string& name_of(const Parameter* parameter) const = 0;
};

}  // namespace sotto::multilevel
