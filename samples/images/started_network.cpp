#include "samples/images/started_network.h"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "autograd/ops.h"
#include "autograd/precision.h"
#include "core/error.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "memory/outputs_of.h"
#include "nn/models/load_weights.h"
#include "samples/cli/program.h"

namespace sotto::images {

namespace {

nn::ImageModel* image_model(const samples::StartedModel& started) {
  auto* const model = dynamic_cast<nn::ImageModel*>(started.pretrained.model.get());
  check(model != nullptr, "--init: not a model of pictures");
  return model;
}

// True if no parameter outside of the classifier is trained.
bool trains_head_only(const nn::ImageModel& model, const nn::TuningSummary& summary) {
  const nn::ModelParts parts = model.parts();
  return std::ranges::all_of(summary.trained_names,
                             [&](const std::string& name) { return parts.in_head(name); });
}

}  // namespace

StartedNetwork::StartedNetwork(const samples::Start& start, const nn::PretrainedOptions& pretrained,
                               const StartedOptions& options)
    : started_(samples::start_model(start, pretrained)),
      model_(image_model(started_)),
      input_(nn::image_input(start.init, started_.pretrained)),
      inputs_(input_, options.size) {
  input_.size = inputs_.size();
  const bool head_only = trains_head_only(*model_, started_.summary);
  if (!options.layers.empty()) {
    check(head_only, "--layers: needs --tune head");
    layers_.emplace(*model_, options.layers);
    Tape tape({.training = false});
    const std::int64_t side = inputs_.size();
    const Var blank = tape.input(zeros({1, inputs_.channels(), side, side}));
    const std::int64_t width = values(blank).shape()[1];
    standardize_.emplace(width);
    classifier_.emplace(width, pretrained.classes);
  } else if (head_only) {
    first_ = model_->parts().block_count + 1;
  } else if (options.cached) {
    first_ = nn::first_trained_block(*model_);
    check(first_ > 0, "--cache: nothing in front of the blocks that --tune {} trains is frozen",
          start.tune);
  }
}

void StartedNetwork::visit(const nn::Visitor& visitor) {
  if (!layers_) return model().visit(visitor);
  visitor("standardize", *standardize_);
  visitor("classifier", *classifier_);
}

StandardizeOptions StartedNetwork::standardize() {
  // The sum of squares is 1: a column is of the size of 1 / root(columns).
  constexpr double most = 3;
  const std::int64_t columns = standardize_->mean->value.numel();
  const double bound = most / std::sqrt(static_cast<double>(columns));
  StandardizeOptions options{.layer = &*standardize_};
  for (std::int64_t column = 0; column < columns; ++column)
    options.ranges[column] = {-bound, bound};
  return options;
}

Var StartedNetwork::forward(const Var& x) {
  if (layers_) return (*classifier_)((*standardize_)(cast(x, Dtype::f32)));
  if (first_ == 0) return model_->classify(model_->features(inputs_(x)));
  const Var wide = cast(x, Dtype::f32);
  return first_ > model_->parts().block_count ? model_->classify(wide)
                                              : model_->from_block(wide, first_);
}

Var StartedNetwork::values(const Var& pictures) {
  const Var x = inputs_(pictures);
  if (layers_) return (*layers_)([&] { (*model_)(x); });
  return first_ > model_->parts().block_count ? model_->features(x)
                                              : model_->before_block(x, first_);
}

Tensor StartedNetwork::trunk_values(const Tensor& pictures) {
  constexpr std::int64_t at_once = 64;  // pictures: their widest values take 100 MB at 128 pixels
  const std::int64_t n = pictures.size(0);
  Tensor all;
  for (std::int64_t begin = 0; begin < n; begin += at_once) {
    const Tensor some = pictures.slice(0, begin, std::min(n, begin + at_once));
    const Tensor wide = memory::outputs_of(
        *model_, {.inputs = some, .targets = zeros({some.size(0)}, Dtype::i64)},
        [&](Tape& tape, const Dataset& part) { return values(tape.input(part.inputs)); });
    if (!all.defined()) {
      Shape shape = wide.shape();
      shape[0] = n;
      samples::check_fits("--cache, --tune, --size",
                          static_cast<double>(shape.numel()) * sizeof(f16));
      all = Tensor::empty(shape, Dtype::f16);
    }
    copy_into(to_dtype(wide, Dtype::f16), all.slice(0, begin, begin + some.size(0)));
  }
  return all;
}

std::string StartedNetwork::trunk_identity() const {
  const std::string place = layers_ ? fmt::format("into {}", fmt::join(layers_->paths(), ", "))
                                    : fmt::format("in front of block {}", first_);
  return fmt::format("{} of a {} {}, of pictures {}", place,
                     started_.pretrained.report.architecture,
                     samples::frozen_hash(started_.pretrained), inputs_.to_text());
}

}  // namespace sotto::images
