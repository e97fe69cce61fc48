// A problem while it is being solved: its batch, gradients, updates and state.
#pragma once

#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "memory/accumulation.h"
#include "multilevel/gradient_vectors.h"
#include "multilevel/problem.h"

namespace sotto::multilevel {

// Tensors of a state, by their names.
using NamedTensors = std::map<std::string, Tensor>;

// Thrown where a gradient in f16 overflowed: the update that needs it is skipped.
struct GradientOverflow : std::runtime_error {
  GradientOverflow() : std::runtime_error("multilevel: a gradient in f16 overflowed") {}
};

// A problem in training. Levels makes one for each problem; responses get the one below.
class Level {
 public:
  // `everything` are the parameters of all problems.
  Level(const Problem& problem, const std::vector<Parameter*>& everything);

  // For responses: everything is at the parameters as they are now and on the last batch, with the
  // same dropout masks in all passes.
  const Problem& problem() const { return problem_; }
  // The parameters that the optimizer holds.
  const std::vector<Parameter*>& parameters() const { return parameters_; }
  // The gradient of the mean loss by parameters of any problem; zeros for those it does not read.
  Gradients gradient(const std::vector<Parameter*>& by);
  // Calls run for each physical batch, with `by` alone trainable (Accumulation::over).
  void over_batch(const std::vector<Parameter*>& by, const std::function<void(Pass&)>& run);
  // The number of rows of the last batch.
  std::int64_t rows() const { return std::ssize(rows_); }
  // The present loss scale; 1 unless in f16.
  double loss_scale() const { return accumulation_.loss_scale().value(); }
  // The gradient of the last update, clipped, if the response keeps it.
  const Gradients& last_gradient() const;
  // Optimizer::state(); a parameter's tensors begin with name_of() and a dot.
  NamedTensors optimizer_state() const { return problem_.optimizer.state(named_); }
  // The parameter's name in states. Throws std::invalid_argument for another problem's.
  const std::string& name_of(const Parameter* parameter) const;

  // While it lives, Pass::detach() gives the values at the parameters of the moment it is made; not
  // so with `hold` false.
  class DetachedHeld {
   public:
    // Keeps the values of `level` from now on.
    explicit DetachedHeld(Level& level, bool hold = true);
    DetachedHeld(const DetachedHeld&) = delete;
    DetachedHeld& operator=(const DetachedHeld&) = delete;
    ~DetachedHeld();

   private:
    Level& level_;
  };

  // For Levels. Begins a step on the next batch.
  void next_batch();
  // Adds a step's gradient, in the order of parameters(); nullopt: it overflowed. Updates after
  // steps_per_update steps.
  void add(std::optional<Gradients> gradient);
  // Roll-back: keeps parameters and optimizer as they are, and takes them back.
  void keep();
  // Takes back what keep() kept.
  void restore();
  // Steps made.
  std::int64_t steps() const { return steps_; }
  // The mean loss of the last step.
  double mean_loss() const { return mean_loss_; }
  // The names are those of state() of one problem.
  NamedTensors state() const;
  // Throws as Levels::load_state() does.
  void load_state(const NamedTensors& state);

 private:
  struct Kept {
    std::vector<Tensor> values;
    NamedTensors optimizer;
    std::int64_t updates = 0;
  };
  Var loss(Pass& pass) const;
  TapeOptions tape_options() const;
  void update();
  void clip(Gradients& gradients) const;
  Gradients named_gradients(const NamedTensors& state, const std::string& prefix) const;

  Problem problem_;
  nn::NamedParameters named_;           // with frozen ones
  std::vector<Parameter*> parameters_;  // that the optimizer holds
  std::vector<Parameter*> everything_;
  memory::Accumulation accumulation_;
  DetachedValues detached_;
  std::vector<std::int64_t> rows_;
  std::int64_t steps_ = 0, batches_ = 0, updates_ = 0;
  std::int64_t pending_ = 0;  // steps since the last update
  bool overflowed_ = false;   // one of them
  Gradients sum_;             // of the pending steps
  Gradients last_gradient_;
  std::optional<Kept> kept_;
  double pass_loss_ = 0;  // mean loss of the last pass
  double mean_loss_ = 0;  // that of the last step
};

}  // namespace sotto::multilevel
