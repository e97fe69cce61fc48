#include "nn/models/pretrained_model.h"

namespace sotto::nn {

std::string ModelParts::block(std::int64_t k) const {
  check(k >= 0 && k < block_count, "ModelParts: block {} of {}", k, block_count);
  return listed.empty() ? blocks + "." + std::to_string(k) : listed[static_cast<std::size_t>(k)];
}

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
