// Inference: runs a model on samples, in batches, without training. Dropout is off, no values are
// kept for a backward pass, and the model does not change.
#pragma once

#include <cstdint>
#include <functional>

#include "nn/data/dataset.h"
#include "nn/module.h"

namespace sotto::nn {

// The default number of samples that are computed at a time.
inline constexpr std::int64_t prediction_batch = 256;

// Returns model(inputs), [n, ...] on the CPU, computed for `batch` samples at a time on the device
// of the model's parameters. Throws std::invalid_argument if there is no sample, for batch < 1, and
// if the model's result does not have one row per sample along its first axis; also throws the
// errors of the model.
//
//   const Tensor digits = argmax(nn::predict(model, images));
Tensor predict(Module& model, const Tensor& inputs, std::int64_t batch = prediction_batch);

// Returns forward's results for all samples of a data set. Use it for a model with several inputs:
//
//   nn::predict(tagger, data, [&](Tape& tape, const Dataset& batch) {
//     return tagger(tape.input(batch.inputs), batch.field("lengths"));
//   });
using Forward = std::function<Var(Tape& tape, const Dataset& batch)>;
// Runs batches of `batch` samples, on a tape without training.
Tensor predict(Module& model, const Dataset& data, const Forward& forward,
               std::int64_t batch = prediction_batch);

// Returns the fraction of targets, i64 [n, ...], that equal the index of the largest element along
// the last axis of outputs [n, ..., classes]. Throws std::invalid_argument for other shapes or
// types and if there is no target.
double accuracy(const Tensor& outputs, const Tensor& targets);
// Returns the accuracy of predict(model, data.inputs) for data.targets.
double accuracy(Module& model, const Dataset& data, std::int64_t batch = prediction_batch);

}  // namespace sotto::nn
