#include "samples/tune/tuned_network.h"

#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::tune {

TunedNetwork::TunedNetwork(std::unique_ptr<nn::Module> network, bool with_slope)
    : network_(std::move(network)) {
  if (with_slope) slope_ = std::make_unique<Parameter>(zeros({1}));
}

// The network's parameters keep their names.
void TunedNetwork::visit(const nn::Visitor& visitor) {
  network_->visit(visitor);
  visitor("clip_slope", slope_);
}

}  // namespace sotto::tune
