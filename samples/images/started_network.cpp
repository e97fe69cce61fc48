#include "samples/images/started_network.h"

#include <algorithm>

#include "autograd/ops.h"
#include "autograd/precision.h"
#include "core/error.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "memory/outputs_of.h"

namespace sotto::images {

namespace {

nn::ImageModel* image_model(const samples::StartedModel& started) {
  auto* const model = dynamic_cast<nn::ImageModel*>(started.pretrained.model.get());
  check(model != nullptr, "--init: not a model of pictures");
  return model;
}

// Whether what is trained lies in the classifier alone.
bool trains_head_only(const nn::ImageModel& model, const nn::TuningSummary& summary) {
  const nn::ModelParts parts = model.parts();
  return std::ranges::all_of(summary.trained_names,
                             [&](const std::string& name) { return parts.in_head(name); });
}

}  // namespace

StartedNetwork::StartedNetwork(const samples::Start& start, const nn::PretrainedOptions& options,
                               std::int64_t size)
    : started_(samples::start_model(start, options)),
      model_(image_model(started_)),
      inputs_(nn::image_input(start.init, started_.pretrained), size),
      of_features_(trains_head_only(*model_, started_.summary)) {}

Var StartedNetwork::forward(const Var& x) {
  if (of_features_) return model_->classify(cast(x, Dtype::f32));
  return model_->classify(model_->features(inputs_(x)));
}

Tensor StartedNetwork::features(const Tensor& pictures) {
  const Tensor wide = memory::outputs_of(
      *model_, {.inputs = pictures, .targets = zeros({pictures.size(0)}, Dtype::i64)},
      [&](Tape& tape, const Dataset& part) {
        return model_->features(inputs_(tape.input(part.inputs)));
      });
  return to_dtype(wide, Dtype::f16);
}

}  // namespace sotto::images
