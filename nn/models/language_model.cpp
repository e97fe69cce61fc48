#include "nn/models/language_model.h"

#include <algorithm>

#include "autograd/ops/loss/losses.h"
#include "autograd/ops/reductions.h"
#include "autograd/ops/shape_ops.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::nn {

namespace {

// A cache grows by at least this many tokens.
constexpr std::int64_t chunk_tokens = 256;

// `x` with room for `tokens`, of which the first `used` are kept.
Tensor with_room(const Tensor& x, const Tensor& like, std::int64_t used, std::int64_t tokens) {
  if (x.defined() && x.size(2) >= tokens) return x;
  Shape shape = like.shape();
  shape[2] = (std::max(tokens, 2 * used) + chunk_tokens - 1) / chunk_tokens * chunk_tokens;
  const Tensor larger = Tensor::empty(shape, like.dtype(), like.device());
  if (used > 0) copy_into(x.slice(2, 0, used), larger.slice(2, 0, used));
  return larger;
}

}  // namespace

std::pair<Tensor, Tensor> KeyValueCache::append(std::size_t layer, const Tensor& keys,
                                                const Tensor& values) {
  check(keys.rank() == 4 && keys.size(0) == 1 && keys.size(2) == values.size(2),
        "cache: keys {} and values {} of one row are needed", keys.shape(), values.shape());
  if (layers_.size() <= layer) layers_.resize(layer + 1);
  const std::int64_t end = length_ + keys.size(2);
  const auto extended = [&](Tensor& all, const Tensor& more) {
    all = with_room(all, more, length_, end);
    copy_into(more, all.slice(2, length_, end));
    return all.slice(2, 0, end);
  };
  Layer& at = layers_[layer];
  const Tensor all_keys = extended(at.keys, keys);
  return {all_keys, extended(at.values, values)};
}

Var LanguageModel::next(const Var& ids, KeyValueCache& cache) {
  check(ids.rank() == 2 && ids.shape()[0] == 1 && ids.shape()[1] >= 1,
        "next: ids {} where one row [1, t] is needed", ids.shape());
  const std::int64_t t = ids.shape()[1];
  check(max_tokens() == 0 || cache.length() + t <= max_tokens(),
        "next: {} tokens behind {}, where the model reads {}", t, cache.length(), max_tokens());
  const Var x = hidden({.ids = ids}, &cache);
  cache.advance(t);
  return squeeze(output(slice(x, 1, t - 1, t)), 1);
}

Var next_token_loss(const Var& logits, const Tensor& labels, const TokenLossOptions& options) {
  check(logits.rank() == 3 && labels.rank() == 2 && labels.size(0) == logits.shape()[0] &&
            labels.size(1) == logits.shape()[1],
        "next_token_loss: logits {} for labels {}", logits.shape(), labels.shape());
  const std::int64_t n = labels.size(0), t = labels.size(1);
  const std::vector<std::int64_t> given = labels.to_vector<std::int64_t>();
  std::vector<std::int64_t> behind(given.size(), options.ignore_index);
  for (std::int64_t row = 0; row < n; ++row) {
    const auto first = given.begin() + row * t;
    std::copy(first + std::min<std::int64_t>(t, 1), first + t, behind.begin() + row * t);
  }
  const CrossEntropyOptions entropy{.class_axis = 2, .ignore_index = options.ignore_index};
  const Tensor targets = Tensor::from(behind, labels.shape()).to(logits.value().device());
  return options.sum ? sum_per_sample(cross_entropy_elements(logits, targets, entropy))
                     : cross_entropy(logits, targets, entropy);
}

}  // namespace sotto::nn
