// Inference: what a model gives for samples, in batches, without training. Dropout and the like are
// off, nothing is kept for a backward pass, and nothing of the model changes.
#pragma once

#include <cstdint>
#include <functional>

#include "nn/data/dataset.h"
#include "nn/module.h"

namespace sotto::nn {

inline constexpr std::int64_t prediction_batch = 256;

// model(inputs), [n, ...] on the CPU: `batch` samples at a time, on the device of the model's
// parameters. Throws std::invalid_argument without samples, for batch < 1, and for a model whose
// result has not one row for each sample along its first axis; and as the model does.
//   const Tensor digits = argmax(nn::predict(model, images));
Tensor predict(Module& model, const Tensor& inputs, std::int64_t batch = prediction_batch);

// The same of a model with inputs of its own:
//   nn::predict(tagger, data, [&](Tape& tape, const Dataset& batch) {
//     return tagger(tape.input(batch.inputs), batch.field("lengths"));
//   });
using Forward = std::function<Var(Tape& tape, const Dataset& batch)>;
Tensor predict(Module& model, const Dataset& data, const Forward& forward,
               std::int64_t batch = prediction_batch);

// The share of targets, i64 [n, ...], that are the place of the largest element along the last axis
// of outputs [n, ..., classes]. Throws std::invalid_argument for other shapes and for no target.
double accuracy(const Tensor& outputs, const Tensor& targets);
// That of predict(model, data.inputs).
double accuracy(Module& model, const Dataset& data, std::int64_t batch = prediction_batch);

}  // namespace sotto::nn
