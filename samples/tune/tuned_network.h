// A network whose clip bound may be learned beside it.
#pragma once

#include <memory>

#include "nn/module.h"

namespace sotto::tune {

// A network, and the slope of LearnedClipBound if it is asked for.
class TunedNetwork final : public nn::Module {
 public:
  TunedNetwork(std::unique_ptr<nn::Module> network, bool with_slope);

  Var forward(const Var& x) override { return (*network_)(x); }
  void visit(const nn::Visitor& visitor) override;
  Parameter* slope() { return slope_.get(); }  // null without one
  // All parameters but the slope.
  std::vector<Parameter*> network_parameters() { return network_->parameters(); }

 private:
  std::unique_ptr<nn::Module> network_;
  std::unique_ptr<Parameter> slope_;
};

}  // namespace sotto::tune
