#include "nn/models/pretrained_model.h"

#include <algorithm>

namespace sotto::nn {

namespace {

bool within_any(const std::string& path, const std::vector<std::string>& parts) {
  return std::ranges::any_of(parts, [&](const std::string& part) { return is_within(path, part); });
}

}  // namespace

bool is_within(const std::string& path, const std::string& part) {
  return path.starts_with(part) && (path.size() == part.size() || path[part.size()] == '.');
}

bool ModelParts::in_embeddings(const std::string& path) const {
  return within_any(path, embeddings);
}

bool ModelParts::in_head(const std::string& path) const { return within_any(path, head); }

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
