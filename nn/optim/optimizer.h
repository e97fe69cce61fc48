// Optimizers: an update rule, applied to groups of parameters with options of their own, and the
// state that the rule keeps between steps.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/parameter.h"
#include "nn/module.h"
#include "nn/optim/update_rules.h"

namespace sotto {
struct UpdateArray;
}

namespace sotto::nn {

class Schedule;
class Shards;
class UpdateRule;

// Updates parameters from gradients. Make one with a rule, and pass it the gradients of a backward
// or of the private Engine:
//
//   Adam optimizer(model, {.learning_rate = 1e-3});
//   SumSink sums;
//   tape.backward(loss, sums);
//   optimizer.step(sums.gradients());
class Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Updates, in place, the parameters that have a gradient; other parameters and their state do not
  // change. `noise_variance` is the variance of the noise on each element, for rules that correct
  // for it. Throws std::invalid_argument, before any update, for a parameter that is not the
  // optimizer's, appears twice, is frozen or has changed its dtype, and for a gradient that has
  // another shape, is not floating-point, or holds NaN or infinity.
  void step(const Gradients& gradients, double noise_variance = 0);

  // Tensors of the parameter's size that a rule's step holds at most, besides state and gradient.
  static constexpr std::size_t temporaries = 4;

  // All parameters, in the order in which they were given.
  std::vector<const Parameter*> parameters() const;
  // Bytes of the state that first steps have yet to allocate.
  std::size_t bytes_to_come() const;
  int groups() const;
  // The options of each group's rule at the first steps, as text, to be compared.
  std::vector<std::string> group_descriptions() const;
  // The present learning rate of a group.
  double learning_rate(int group = 0) const;
  void set_learning_rate(double rate);  // for every group
  void set_learning_rate(int group, double rate);
  // Sets the momentum of SGD and RMSprop, and beta1 of Adam. Throws std::invalid_argument for other
  // rules.
  void set_momentum(double momentum);
  // Sets the weight decay of every group.
  void set_weight_decay(double weight_decay);
  // Sets each group's learning rate to the schedule's value at a step, computed from the rate the
  // group was made with, and the momentum if the schedule has one.
  void follow(const Schedule& schedule, std::int64_t step);

  // Divides the state and all further steps among the ranks of a distributed run: each keeps and
  // updates the elements that it owns, and step() takes their gradients, [elements] for each
  // parameter. The engine calls it (EngineOptions::ranks). Steps of a rule that needs whole
  // parameters (Lamb) are then collective. Throws std::invalid_argument, before any change, for an
  // optimizer that was divided among other ranks.
  void divide(std::shared_ptr<const Shards> shards);

  // The state for a training checkpoint: "conv1.weight.steps" (i64 of rank 0) and a tensor for each
  // buffer, "conv1.weight.momentum". Options and rates are not part of it. `names` must name every
  // parameter of the optimizer; the tensors are copies. Divided among ranks: collective; rank 0
  // gets the whole state, every other rank an empty one.
  std::map<std::string, Tensor> state(const NamedParameters& names) const;
  // Restores a state. Throws std::invalid_argument with the entry's name, before any change, when
  // an entry is missing, unexpected, or of another shape or dtype. Local: with ranks, each takes
  // its part of the whole state.
  void load_state(const std::map<std::string, Tensor>& state, const NamedParameters& names);

  // A step in blocks, for gradients that are finished piece by piece: each block is updated while
  // it is still in the cache (Mechanism::release).
  class Step {
   public:
    // Announces the gradients that will be finished. Throws as step() does, except for values that
    // are not finite.
    Step(Optimizer& optimizer, const Gradients& gradients, double noise_variance);
    // Announces gradients of these parameters on the CPU, of their shapes and types, which are not
    // made yet.
    Step(Optimizer& optimizer, const std::vector<Parameter*>& parameters, double noise_variance);
    // True if the parameter is updated block by block. A rule that needs whole parameters, and one
    // whose first step makes its state, need the whole gradient.
    bool takes_blocks(const Parameter* parameter) const;
    // finished() for a parameter that takes blocks, with no more than the block: the elements of
    // the gradient from `first` on, one axis.
    void finished_block(const Parameter* parameter, const Tensor& block, std::int64_t first,
                        bool finite = false);
    // Call this when elements first .. end - 1 of the parameter's row-major gradient `flat` are
    // finished, for each block once, in order. The parameter is updated block by block, or with its
    // last block if the rule needs whole parameters. Throws std::invalid_argument for a block that
    // holds NaN or infinity; blocks known to be `finite` are not searched.
    void finished(const Parameter* parameter, const Tensor& flat, std::int64_t first,
                  std::int64_t end, bool finite = false);
    // The parameter's whole update, for Backend::update once the gradient is finished in place; it
    // is counted as a step. Returns nullopt, and finished() must be called instead, if the rule
    // needs whole parameters or the gradient has another dtype, device or memory layout.
    std::optional<UpdateArray> array(const Parameter* parameter, const Tensor& grad);

   private:
    Optimizer& optimizer_;
    double noise_variance_;
  };

 protected:
  Optimizer();
  // Adds a group. Throws std::invalid_argument for a parameter that is already in a group or is
  // neither f32 nor f64: 16-bit weights would lose small updates.
  void add_group(const std::vector<Parameter*>& parameters, double rate, bool bf16_state,
                 std::unique_ptr<const UpdateRule> rule);
  // The parameters of a module that are not frozen.
  static std::vector<Parameter*> trainable(Module& module);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The optimizer of one rule of nn/optim/update_rules.h. Each has an alias below.
template <class Rule>
class RuleOptimizer final : public Optimizer {
 public:
  // Parameters that are updated by one rule.
  struct Group {
    std::vector<Parameter*> parameters;  // not owned
    Rule rule;                           // with its options
    // Keep the state in bf16, half the bytes: each step computes in the parameters' type and rounds
    // the state stochastically, so that its expectation is exact and small changes are not lost
    // (Gupta et al. 2015, section 3.1). The draws are a function of step, parameter and element.
    // CPU only.
    bool bf16_state = false;
  };

  // Optimizes all parameters of a module that are not frozen now. The module must outlive the
  // optimizer. Throws std::invalid_argument for options out of range, and for parameters as
  // add_group() does.
  explicit RuleOptimizer(Module& module, const Rule& rule = {});
  // Optimizes these parameters, which must outlive the optimizer.
  explicit RuleOptimizer(const std::vector<Group>& groups);
};

using Sgd = RuleOptimizer<SgdRule>;            // with momentum
using Adam = RuleOptimizer<AdamRule<false>>;   // Kingma and Ba 2015
using AdamW = RuleOptimizer<AdamRule<true>>;   // Loshchilov and Hutter 2019
using RmsProp = RuleOptimizer<RmsPropRule>;    // Tieleman and Hinton 2012
using Adagrad = RuleOptimizer<AdagradRule>;    // Duchi et al. 2011
using Adamax = RuleOptimizer<AdamaxRule>;      // Kingma and Ba 2015
using Adadelta = RuleOptimizer<AdadeltaRule>;  // Zeiler 2012
using Lamb = RuleOptimizer<LambRule>;          // You et al. 2020
using DpAdam = RuleOptimizer<DpAdamRule>;      // Tang et al. 2023

}  // namespace sotto::nn
