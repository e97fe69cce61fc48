#include "nn/check/check_layer.h"

#include <fmt/format.h>

#include "core/random/philox.h"

namespace sotto::testing {

void check_layer(nn::Module& layer, const std::function<Tensor(PublicRandom&)>& make,
                 const CheckOptions& options) {
  const auto instance = [&](PublicRandom& random) {
    const Tensor x = make(random);
    return Instance{{{x, 0, is_float(x.dtype())}},
                    [&layer](const std::vector<Var>& v) { return layer(v[0]); },
                    layer.parameters()};
  };
  check_op({"layer", fmt::format("{} parameters", layer.parameter_count()), instance}, options);
}

}  // namespace sotto::testing
