// Small random models, and batches that try to break privacy, for the tests of private training.
#pragma once

#include <cmath>
#include <limits>

#include "autograd/ops.h"
#include "core/random/philox.h"
#include "dp/clipping/clipper.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/layers.h"
#include "nn/module.h"

namespace sotto {

// A convolution, a normalisation and two linear layers: every form of per-sample gradient except
// look-ups; about two hundred parameters.
inline nn::Sequential small_network() {
  return nn::Sequential{nn::Conv2d(1, 4, 3, {.padding = {1}}),
                        nn::GroupNorm(2, 4),
                        nn::Tanh(),
                        nn::MaxPool2d(2, 2),
                        nn::Flatten(),
                        nn::Linear(36, 5),
                        nn::Tanh(),
                        nn::Linear(5, 3)};
}

struct Batch {
  Tensor images;   // [n, 1, 6, 6] f32
  Tensor targets;  // [n]
};

inline Batch random_batch(std::int64_t n, PublicRandom& random) {
  std::vector<float> pixels(static_cast<std::size_t>(n * 36));
  for (float& pixel : pixels) pixel = static_cast<float>(random.normal());
  std::vector<std::int64_t> targets(static_cast<std::size_t>(n));
  for (auto& target : targets) target = random.below(3);
  return {Tensor::from(pixels, {n, 1, 6, 6}), Tensor::from(targets, {n})};
}

// The batch without one of its samples.
inline Batch without(const Batch& batch, std::int64_t sample) {
  const std::int64_t n = batch.images.size(0);
  std::vector<float> pixels = batch.images.to_vector<float>();
  std::vector<std::int64_t> targets = batch.targets.to_vector<std::int64_t>();
  pixels.erase(pixels.begin() + sample * 36, pixels.begin() + (sample + 1) * 36);
  targets.erase(targets.begin() + sample);
  return {Tensor::from(pixels, {n - 1, 1, 6, 6}), Tensor::from(targets, {n - 1})};
}

// The sums of all parameters, concatenated, in double.
inline std::vector<double> flat(const Gradients& gradients) {
  std::vector<double> values;
  for (const auto& [parameter, tensor] : gradients) {
    for (const double v : to_dtype(tensor, Dtype::f64).to_vector<double>()) values.push_back(v);
  }
  return values;
}

inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double square = 0;
  for (std::size_t i = 0; i < a.size(); ++i) square += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(square);
}

// The clipped sum over a batch in one physical batch.
inline std::vector<double> clipped_sum(nn::Sequential& model, const Batch& batch,
                                       Clipper& clipper) {
  clipper.discard();
  Tape tape({.private_data = true});
  if (batch.images.size(0) > 0) {
    const Var logits = model(tape.input(batch.images));
    clipper.add(tape, cross_entropy(logits, batch.targets));
  }
  return flat(clipper.clipped_sums());
}

}  // namespace sotto
