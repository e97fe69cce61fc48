// Small decoders with random weights, and tokens for them.
#pragma once

#include "autograd/tape.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "nn/models/gpt2.h"
#include "nn/models/llama.h"

namespace sotto {

inline nn::Gpt2Config small_gpt2() {
  nn::Gpt2Config config;
  config.vocabulary = 13;
  config.positions = 12;
  config.width = 8;
  config.layers = 2;
  config.heads = 2;
  config.initializer_range = 0.5;
  return config;
}

// Two query heads for each key head; frequencies scaled as Llama 3.1's.
inline nn::LlamaConfig small_llama() {
  nn::LlamaConfig config;
  config.vocabulary = 13;
  config.width = 12;
  config.inner = 16;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_width = 4;
  config.positions = 64;
  config.rotary = {
      .base = 100, .scaling = nn::RotaryConfig::Scaling::llama3, .factor = 4, .original = 32};
  config.initializer_range = 0.5;
  return config;
}

inline std::vector<std::int64_t> some_ids(std::int64_t count, std::uint64_t seed = 1) {
  PublicRandom random(seed);
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(random.below(13));
  return ids;
}

// The logits without dropout, [n, t, vocabulary].
inline Tensor logits_of(nn::TokenModel& model, const Tensor& ids, const Tensor& mask = {},
                        const Tensor& positions = {}) {
  Tape tape({.training = false});
  nn::TokenInputs inputs{.ids = tape.input(ids)};
  if (mask.defined()) inputs.mask = tape.input(mask);
  if (positions.defined()) inputs.positions = tape.input(positions);
  return model(inputs).value();
}

// The largest difference of two tensors of equal shapes.
inline double difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = to_dtype(a, Dtype::f64).to_vector<double>(),
                            y = to_dtype(b, Dtype::f64).to_vector<double>();
  if (x.size() != y.size()) return 1e300;
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::abs(x[i] - y[i]));
  return largest;
}

}  // namespace sotto
