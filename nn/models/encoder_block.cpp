#include "nn/models/encoder_block.h"

#include "autograd/ops.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/models/model_blocks.h"

namespace sotto::nn {

namespace {

Var scaled(const Var& branch, const std::unique_ptr<Parameter>& factors) {
  return factors ? branch * branch.tape().use(*factors) : branch;
}

}  // namespace

EncoderBlock::EncoderBlock(const EncoderBlockOptions& options)
    : options_(options),
      attention_norm_(options.features,
                      {.eps = options.norm_eps, .writes_16bit = options.norm_first}),
      feed_forward_norm_(options.features,
                         {.eps = options.norm_eps, .writes_16bit = options.norm_first}) {
  const std::int64_t features = options.features, hidden = options.hidden_features;
  check(options.heads >= 1 && features % options.heads == 0, "attention: {} heads of {} features",
        options.heads, features);
  const bool bias = options.query_key_value_bias;
  if (options.names.query_key_value) {
    query_key_value_ = linear_child(features, 3 * features, bias);
  } else {
    for (std::unique_ptr<Module>* part : {&query_, &key_, &value_})
      *part = linear_child(features, features, bias);
  }
  projection_ = linear_child(features, features);
  fc1_ = linear_child(features, hidden);
  fc2_ = linear_child(hidden, features);
  if (!options.layer_scale) return;
  for (std::unique_ptr<Parameter>* factors : {&attention_scale_, &feed_forward_scale_})
    *factors = std::make_unique<Parameter>(full({features}, *options.layer_scale));
}

Var EncoderBlock::operator()(const Var& x, const std::vector<Var>& masks) {
  std::vector<Var> inputs{x};
  inputs.insert(inputs.end(), masks.begin(), masks.end());
  return call(inputs, [this](std::span<const Var> now) {
    return forward(now[0], std::vector<Var>(now.begin() + 1, now.end()));
  });
}

Var EncoderBlock::attend(const Var& x, const std::vector<Var>& masks) {
  std::vector<Var> parts;
  if (query_key_value_) {
    parts = chunk((*query_key_value_)(x), -1, 3);
  } else {
    parts = {(*query_)(x), (*key_)(x), (*value_)(x)};
  }
  for (Var& part : parts) part = split_heads(part, options_.heads);
  const Var mixed = attention(parts[0], parts[1], parts[2], masks,
                              {.scale = {}, .dropout = options_.attention_dropout});
  const Var y = dropout((*projection_)(merge_heads(mixed)), options_.projection_dropout);
  return drop_path(scaled(y, attention_scale_), options_.drop_path);
}

Var EncoderBlock::feed_forward(const Var& x) {
  const Var inner = dropout(options_.activation((*fc1_)(x)), options_.hidden_dropout);
  const Var y = dropout((*fc2_)(inner), options_.feed_forward_dropout);
  return drop_path(scaled(y, feed_forward_scale_), options_.drop_path);
}

Var EncoderBlock::forward(const Var& x, const std::vector<Var>& masks) {
  if (options_.norm_first) {
    const Var y = x + attend(attention_norm_(x), masks);
    return y + feed_forward(feed_forward_norm_(y));
  }
  const Var y = attention_norm_(x + attend(x, masks));
  return feed_forward_norm_(y + feed_forward(y));
}

void EncoderBlock::visit(const Visitor& visitor) {
  const EncoderBlockNames& names = options_.names;
  if (query_key_value_) {
    visitor(names.query_key_value, query_key_value_);
  } else {
    visitor(names.query, query_);
    visitor(names.key, key_);
    visitor(names.value, value_);
  }
  visitor(names.projection, projection_);
  visitor(names.attention_norm, attention_norm_);
  visitor(names.fc1, fc1_);
  visitor(names.fc2, fc2_);
  visitor(names.feed_forward_norm, feed_forward_norm_);
  if (!attention_scale_) return;
  visitor(names.attention_scale, attention_scale_);
  visitor(names.feed_forward_scale, feed_forward_scale_);
}

}  // namespace sotto::nn
