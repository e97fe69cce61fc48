// The clip bound, learned while a private training runs, within its own releases.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "dp/clipping/clip_groups.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/schedule.h"

namespace sotto {

// Settings of LearnedClipBound.
struct LearnedClipBoundOptions {
  double initial = 1;  // the clip bound C of the first step
  // The bound of the slope's clip group, in clip bounds: all noise grows by sqrt(1 + share^2).
  double share = 0.1;
  // Adam's learning rate (with beta2 0.9) for ln C, which stays within ln 100 of its start.
  double rate = 0.02;
};

// Learns the clip bound C by its hypergradient, for ClipRule::Kind::minimum. A step's gradient is g
// = (1 / B) (sum_i min(1, C / |g_i|) g_i + C noise), so that for an upper loss with the gradient v
//
//   <v, dg/dC> = (1 / C) (<v, g> - (1 / B) sum_{i: |g_i| <= C} <v, g_i>).
//
// The last sum reads the rows: each adds at most C |v|. It is released with the step, as the
// gradient of one further parameter, the slope, in a clip group of its own: the same draw and the
// same event, so that the same epsilon holds as without it, for noise that is larger by
// sqrt(1 + share^2). v must be public, or computed from what was released.
//
//   LearnedClipBound learned(model.parameters(), slope, {.initial = 0.5});
//   Engine engine(..., {.groups = learned.groups(), .bound_schedule = learned.schedule()});
//   learned.set_direction(v);                    // before each step
//   engine.step([&](Tape& tape, auto rows) { return learned.with_slope(losses of the rows); });
//   learned.update(the gradient that the optimizer got, v at the new weights);
class LearnedClipBound {
 public:
  // The slope, a parameter of shape {1}, must not be among `parameters`, be trained with them, and
  // outlive this. Throws std::invalid_argument otherwise, and unless initial and rate are finite
  // and > 0 and share in (0, 1].
  LearnedClipBound(std::vector<Parameter*> parameters, Parameter& slope,
                   const LearnedClipBoundOptions& options);

  // {parameters, initial} and {slope, share * initial}, for EngineOptions::groups.
  std::vector<ClipGroup> groups() const;
  // The present bound over the initial one, for EngineOptions::bound_schedule. Follows this object,
  // and may outlive it.
  nn::Schedule schedule() const;
  // The present C.
  double bound() const { return options_.initial * *factor_; }

  // Sets v for the next step. Throws std::invalid_argument if its norm is not finite and > 0.
  void set_direction(const Gradients& v);
  // The losses, [n], of the rows on a private tape, with terms of value 0 whose derivative by the
  // slope is share C x_i, x_i = <v, g_i> / (C |v|) for rows within the bound and 0 for others. Runs
  // backward twice. Throws std::invalid_argument without a direction.
  Var with_slope(const Var& losses) const;
  // Moves the bound by the gradient of the last step, of the slope too, and v at the weights after
  // it: that of the rows within the bound had to be v before it, but the noise, whose loss a larger
  // bound adds to, shows in the new one alone. Throws std::invalid_argument, with nothing changed,
  // if the gradient lacks the slope or is not finite.
  void update(const Gradients& gradient, const Gradients& v);
  // <v, dg/dC> of the last update(): the change of the upper loss with C, over minus the learning
  // rate.
  double derivative() const { return derivative_; }

  // For a training checkpoint. The tensors are copies.
  std::map<std::string, Tensor> state() const;
  // Continues from a state. Throws std::invalid_argument, with nothing changed, for one that does
  // not fit.
  void load_state(const std::map<std::string, Tensor>& state);

 private:
  void follow();

  std::vector<Parameter*> parameters_;
  Parameter& slope_;
  LearnedClipBoundOptions options_;
  std::shared_ptr<double> factor_ = std::make_shared<double>(1);
  Gradients direction_;
  double norm_ = 0, derivative_ = 0;
  Parameter logarithm_;  // of the factor
  nn::Adam adam_;
};

}  // namespace sotto
