#include "core/error.h"
#include "kernels/host_device/optimizer_update.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/parameter_slot.h"

namespace sotto::nn {

namespace {

template <class Rule>
double& momentum_of(Rule& rule) {
  if constexpr (requires { rule.momentum; })
    return rule.momentum;
  else if constexpr (requires { rule.beta1; })
    return rule.beta1;
  else
    fail("set_momentum: the update rule has no momentum");
}

template <class Rule>
class UpdateRuleOf final : public UpdateRule {
 public:
  explicit UpdateRuleOf(const Rule& rule) : rule_(rule) { rule_.validate(); }

  std::vector<const char*> buffers() const override { return rule_.buffers(); }
  bool elementwise() const override {
    return requires(const Rule& rule, const Update& update) { rule.plan(update); };
  }
  void apply(const Update& update) const override {
    if constexpr (requires { rule_.plan(update); })
      nn::apply(rule_.plan(update), update);
    else
      rule_.apply(update);
  }
  std::optional<RulePlan> plan(const Update& update) const override {
    if constexpr (requires { rule_.plan(update); })
      return rule_.plan(update);
    else
      return {};
  }
  std::unique_ptr<const UpdateRule> with_momentum(double momentum) const override {
    Rule rule = rule_;
    momentum_of(rule) = momentum;
    return std::make_unique<UpdateRuleOf>(rule);
  }
  std::unique_ptr<const UpdateRule> with_weight_decay(double weight_decay) const override {
    Rule rule = rule_;
    rule.weight_decay = weight_decay;
    return std::make_unique<UpdateRuleOf>(rule);
  }
  std::string text() const override {
    if constexpr (requires { rule_.text(); })
      return rule_.text();
    else
      return "";
  }

 private:
  Rule rule_;
};

}  // namespace

template <class Rule>
RuleOptimizer<Rule>::RuleOptimizer(Module& module, const Rule& rule)
    : RuleOptimizer(std::vector<Group>{{trainable(module), rule}}) {}

template <class Rule>
RuleOptimizer<Rule>::RuleOptimizer(const std::vector<Group>& groups) {
  for (const Group& group : groups) {
    add_group(group.parameters, group.rule.learning_rate, group.bf16_state,
              std::make_unique<UpdateRuleOf<Rule>>(group.rule));
  }
}

template class RuleOptimizer<SgdRule>;
template class RuleOptimizer<AdamRule<false>>;
template class RuleOptimizer<AdamRule<true>>;
template class RuleOptimizer<RmsPropRule>;
template class RuleOptimizer<AdagradRule>;
template class RuleOptimizer<AdamaxRule>;
template class RuleOptimizer<AdadeltaRule>;
template class RuleOptimizer<LambRule>;
template class RuleOptimizer<DpAdamRule>;

}  // namespace sotto::nn
