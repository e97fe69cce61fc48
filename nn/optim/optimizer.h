// Optimizers: an update rule applied to groups of parameters, each with options of its own, and
// the state the rule keeps between steps.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_map>

#include "nn/module.h"
#include "nn/optim/schedule.h"
#include "nn/optim/update_rules.h"

namespace sotto::nn {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Updates, in place, the parameters that have a gradient; the others and their state stay.
  // `noise_variance` is that of the noise on each element, for rules that correct for it. Throws
  // std::invalid_argument, and updates nothing, for a parameter that is not the optimizer's, comes
  // twice, is frozen or has changed its type, a gradient of another shape or not floating-point,
  // and a gradient that holds NaN or infinity.
  void step(const Gradients& gradients, double noise_variance = 0);

  // A step in blocks: for gradients that are finished piece by piece, so that the update finds each
  // piece in the cache (Mechanism::release).
  class Step {
   public:
    // For gradients that will be finished; checks and throws as step(), but for what they hold.
    Step(Optimizer& optimizer, const Gradients& gradients, double noise_variance);
    // Elements first .. end - 1 of the parameter's gradient `flat`, row-major, are finished: each
    // once, in order. A parameter moves with its blocks, or with the last of them where the rule
    // needs all. Throws std::invalid_argument for a block that holds NaN or infinity, which is not
    // looked for where all of it is known to be `finite`.
    void finished(const Parameter* parameter, const Tensor& flat, std::int64_t first,
                  std::int64_t end, bool finite = false);
    // The parameter's whole step, which is counted as made, for Backend::update once the gradient
    // is finished in place; nothing, and then finished() must be called, where the rule needs whole
    // parameters or the gradient is of another type or memory order.
    std::optional<UpdateArray> array(const Parameter* parameter, const Tensor& grad);

   private:
    Optimizer& optimizer_;
    double noise_variance_;
  };

  // Tensors like the parameter that a rule's step holds beside state and gradient, at most.
  static constexpr std::size_t temporaries = 4;

  // In the order in which they were given.
  std::vector<const Parameter*> parameters() const;
  // Bytes of the state that first steps of parameters are still to make.
  std::size_t bytes_to_come() const;
  int groups() const { return static_cast<int>(rates_.size()); }
  double learning_rate(int group = 0) const;
  void set_learning_rate(double rate);  // of every group
  void set_learning_rate(int group, double rate);
  // SGD's and RMSprop's momentum, Adam's beta1. Throws std::invalid_argument for other rules.
  virtual void set_momentum(double momentum) = 0;
  // Sets each group's rate, from the rate it was made with, and the momentum if the schedule moves
  // it, to what they are at a step.
  void follow(const Schedule& schedule, std::int64_t step);

  // Everything that steps have built up, for a checkpoint: "conv1.weight.steps" (i64 of rank 0) and
  // a tensor for each buffer, "conv1.weight.momentum". Options and rates are not part of it.
  // `names` must name every parameter of the optimizer; the tensors are copies.
  std::map<std::string, Tensor> state(const NamedParameters& names) const;
  // Continues from a state. Throws std::invalid_argument, naming the entry, when one is missing,
  // unexpected, or of another shape or dtype; then nothing has changed.
  void load_state(const std::map<std::string, Tensor>& state, const NamedParameters& names);

 protected:
  Optimizer() = default;
  // The next group. Throws std::invalid_argument for a parameter that is there already or is
  // neither f32 nor f64: narrower weights would lose small updates.
  void add_group(const std::vector<Parameter*>& parameters, double rate, bool bf16_state);
  // The parameters of a module that are not frozen.
  static std::vector<Parameter*> trainable(Module& module);

 private:
  struct Slot {
    Parameter* parameter;
    Dtype dtype;
    int group;
    bool bf16_state = false;
    std::int64_t steps = 0;
    std::vector<Tensor> buffers{};

    Dtype buffer_dtype() const { return bf16_state ? Dtype::bf16 : dtype; }
  };

  virtual std::vector<const char*> buffers(int group) const = 0;
  virtual void apply(int group, const Update& update) const = 0;
  // Of a rule that treats every element for itself.
  virtual std::optional<RulePlan> plan(int group, const Update& update) const = 0;
  virtual bool elementwise() const = 0;
  Update update_of(Slot& slot, const Tensor& grad, double noise_variance) const;
  bool in_blocks(const Slot& slot, const Tensor& grad) const;
  std::optional<UpdateArray> array(Slot& slot, const Tensor& grad, double noise_variance) const;
  static void label_state(const Slot& slot);
  void check_room(const Gradients& gradients) const;
  void update(Slot& slot, const Tensor& grad, double noise_variance) const;
  void update_together(const Gradients& gradients, double noise_variance);
  void apply_widened(Slot& slot, const Update& part, std::int64_t first) const;
  void update_blocks(Slot& slot, const Update& whole, std::int64_t first, std::int64_t end) const;
  void update_block(Slot& slot, const Update& whole, std::int64_t first, std::int64_t end) const;
  void check_gradients(const Gradients& gradients, double noise_variance) const;
  std::vector<std::string> names_of_slots(const NamedParameters& names) const;
  Slot loaded(const Slot& slot, const std::string& name,
              const std::map<std::string, Tensor>& state) const;

  std::vector<Slot> slots_;
  std::unordered_map<const Parameter*, std::size_t> places_;
  std::vector<double> rates_;
  std::vector<double> base_rates_;
};

template <class Rule>
class RuleOptimizer final : public Optimizer {
 public:
  struct Group {
    std::vector<Parameter*> parameters;
    Rule rule;
    // Keep what steps build up in bf16, half the bytes: each step computes in the parameters' type
    // and rounds at random, up or down, so that the expectation is exact and small changes are not
    // lost (Gupta et al. 2015, section 3.1). The draws are a function of step, parameter and
    // element. On the CPU alone.
    bool bf16_state = false;
  };

  // Over all parameters of a module that are not frozen now. The module must outlive it.
  explicit RuleOptimizer(Module& module, const Rule& rule = {})
      : RuleOptimizer(std::vector<Group>{{trainable(module), rule}}) {}
  explicit RuleOptimizer(const std::vector<Group>& groups) {
    for (const Group& group : groups) {
      group.rule.validate();
      add_group(group.parameters, group.rule.learning_rate, group.bf16_state);
      rules_.push_back(group.rule);
    }
  }

  void set_momentum(double momentum) override {
    std::vector<Rule> rules = rules_;
    for (Rule& rule : rules) {
      momentum_of(rule) = momentum;
      rule.validate();
    }
    rules_ = std::move(rules);
  }

 private:
  static double& momentum_of(Rule& rule) {
    if constexpr (requires { rule.momentum; })
      return rule.momentum;
    else if constexpr (requires { rule.beta1; })
      return rule.beta1;
    else
      fail("set_momentum: the rule has none");
  }
  std::vector<const char*> buffers(int group) const override { return rule(group).buffers(); }
  void apply(int group, const Update& update) const override {
    if constexpr (requires { rule(group).plan(update); })
      nn::apply(rule(group).plan(update), update);
    else
      rule(group).apply(update);
  }
  std::optional<RulePlan> plan(int group, const Update& update) const override {
    if constexpr (requires { rule(group).plan(update); })
      return rule(group).plan(update);
    else
      return {};
  }
  bool elementwise() const override { return !std::is_same_v<Rule, LambRule>; }
  const Rule& rule(int group) const { return rules_[static_cast<std::size_t>(group)]; }

  std::vector<Rule> rules_;
};

using Sgd = RuleOptimizer<SgdRule>;
using Adam = RuleOptimizer<AdamRule<false>>;
using AdamW = RuleOptimizer<AdamRule<true>>;
using RmsProp = RuleOptimizer<RmsPropRule>;
using Adagrad = RuleOptimizer<AdagradRule>;
using Adamax = RuleOptimizer<AdamaxRule>;
using Adadelta = RuleOptimizer<AdadeltaRule>;
using Lamb = RuleOptimizer<LambRule>;
using DpAdam = RuleOptimizer<DpAdamRule>;

}  // namespace sotto::nn
