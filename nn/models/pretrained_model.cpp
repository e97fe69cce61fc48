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

Var ImageModel::before_block(const Var& images, std::int64_t k) {
  const std::int64_t count = parts().block_count;
  check(k >= 0 && k <= count, "before_block: block {} of {}", k, count);
  return through(stem(images), 0, k);
}

Var ImageModel::from_block(const Var& x, std::int64_t k) {
  const std::int64_t count = parts().block_count;
  check(k >= 0 && k <= count, "from_block: block {} of {}", k, count);
  return classify(pooled(through(x, k, count)));
}

Var ImageModel::features(const Var& images) {
  return pooled(through(stem(images), 0, parts().block_count));
}

Var through_stages(std::span<Sequential* const> stages, Var x, std::int64_t begin,
                   std::int64_t end) {
  std::int64_t first = 0;  // of the stage's modules
  for (Sequential* const stage : stages) {
    const std::int64_t last = first + stage->size();
    if (begin <= first && last <= end) {
      x = (*stage)(x);
    } else {
      for (std::int64_t k = std::max(begin, first); k < std::min(end, last); ++k)
        x = (*stage)[static_cast<int>(k - first)](x);
    }
    first = last;
  }
  return x;
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
