#include "nn/models/pretrained_model.h"

namespace sotto::nn {

Var TokenModel::operator()(const TokenInputs& inputs) {
  std::vector<Var> given{inputs.ids};
  for (const std::optional<Var>* more : {&inputs.mask, &inputs.positions, &inputs.token_types}) {
    if (*more) given.push_back(**more);
  }
  return call(given, [this, inputs](std::span<const Var> now) {
    TokenInputs again{.ids = now[0]};
    std::size_t next = 1;
    if (inputs.mask) again.mask = now[next++];
    if (inputs.positions) again.positions = now[next++];
    if (inputs.token_types) again.token_types = now[next++];
    return forward(again);
  });
}

}  // namespace sotto::nn
