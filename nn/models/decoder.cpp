#include "nn/models/decoder.h"

#include "autograd/ops/shape_ops.h"
#include "autograd/sample_axis_rules.h"
#include "autograd/trace.h"

namespace sotto::nn {

namespace {

// [n, m, t, e] as [n, m times, t, e]: each head `times` times in a row.
Var repeated_heads(const Var& x, std::int64_t times) {
  if (times == 1) return x;
  const Shape& shape = x.shape();
  const Var wide = expand(unsqueeze(x, 2), {-1, -1, times, -1, -1});
  return reshape(wide, {shape[0], shape[1] * times, shape[2], shape[3]});
}

// One query for each head: those of a key head are as queries of it, so that keys are not repeated.
Var attend_one(const Var& q, const Var& k, const Var& v, const AttentionOptions& options) {
  const Shape& shape = q.shape();
  const std::int64_t heads = k.shape()[1];
  const Var grouped = reshape(q, {shape[0], heads, shape[1] / heads, shape[3]});
  return reshape(attention(grouped, k, v, {}, {.scale = options.scale}), shape);
}

}  // namespace

Var decoder_attention(const Var& q, const Var& k, const Var& v, const DecoderStep& step,
                      AttentionOptions options) {
  const std::int64_t groups = q.shape()[1] / k.shape()[1];
  options.causal = true;
  if (!step.cache)
    return attention(q, repeated_heads(k, groups), repeated_heads(v, groups), step.masks, options);
  const auto [keys, values] = step.cache->append(step.layer, k.value(), v.value());
  const Var all_keys = untracked(q.tape(), keys, k.samples()),
            all_values = untracked(q.tape(), values, v.samples());
  if (q.shape()[2] == 1) return attend_one(q, all_keys, all_values, options);
  options.always_visible = step.cache->length();
  return attention(q, repeated_heads(all_keys, groups), repeated_heads(all_values, groups), {},
                   options);
}

Var DecoderBlock::operator()(const Var& x, const DecoderStep& step) {
  std::vector<Var> inputs{x};
  inputs.insert(inputs.end(), step.masks.begin(), step.masks.end());
  if (step.angles) inputs.insert(inputs.end(), {step.angles->cosine, step.angles->sine});
  return call(inputs, [this, step](std::span<const Var> now) {
    DecoderStep again = step;
    std::size_t at = 1;
    for (Var& mask : again.masks) mask = now[at++];
    if (again.angles) again.angles = RotaryAngles{.cosine = now[at], .sine = now[at + 1]};
    return forward(now[0], again);
  });
}

Var decoder_positions(const TokenInputs& inputs, const KeyValueCache* cache,
                      std::int64_t max_positions) {
  const Var& ids = inputs.ids;
  check(ids.rank() == 2 && ids.dtype() == Dtype::i64, "ids: {} {} where i64 [n, t] is needed",
        name(ids.dtype()), ids.shape());
  const std::int64_t t = ids.shape()[1], first = cache ? cache->length() : 0;
  std::vector<std::int64_t> values;
  if (inputs.positions) {
    check(inputs.positions->shape() == ids.shape(), "positions: {} for ids {}",
          inputs.positions->shape(), ids.shape());
    values = inputs.positions->value().to_vector<std::int64_t>();
  } else {
    for (std::int64_t i = 0; i < ids.value().numel(); ++i) values.push_back(first + i % t);
  }
  for (const std::int64_t position : values) {
    check(position >= 0 && (max_positions == 0 || position < max_positions),
          "positions: {} where the model has {}", position, max_positions);
  }
  if (inputs.positions) return *inputs.positions;
  const Var y = untracked(ids.tape(), Tensor::from(values, ids.shape()).to(ids.value().device()),
                          ids.samples());
  if (tracing()) explain_value("repeated", {}, {}, y);
  return y;
}

}  // namespace sotto::nn
