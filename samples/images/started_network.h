// A published model of pictures as a network: of pictures in [0, 1], or of the values that its
// frozen trunk gives for them; or a classifier of its own on the inputs of the model's layers.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "dp/engine/standardize.h"
#include "nn/layers/dense_layers.h"
#include "nn/layers/norm_layers.h"
#include "nn/models/layer_means.h"
#include "nn/module.h"
#include "samples/images/model_pictures.h"
#include "samples/pretrained/start.h"

namespace sotto::images {

struct StartedOptions {
  std::int64_t size = 0;  // the side that pictures are resized to; 0: the model's own
  // Inputs are the values in front of the first block that is trained. Without, they are so where
  // the classifier alone is trained.
  bool cached = false;
  // The classifier is a new one on nn::LayerMeans of this pattern; empty: the model's.
  std::string layers = {};
};

class StartedNetwork final : public nn::Module {
 public:
  // Throws std::invalid_argument for `cached` where nothing in front of the trained blocks is
  // frozen, and for layers of a model that is tuned.
  StartedNetwork(const samples::Start& start, const nn::PretrainedOptions& pretrained,
                 const StartedOptions& options);
  Var forward(const Var& x) override;
  // With layers, what standardises the features, and the classifier.
  void visit(const nn::Visitor& visitor) override;
  // The layer that standardises the features of layers, and public ranges of these.
  StandardizeOptions standardize();

  // True if inputs are values of the frozen trunk.
  bool of_trunk() const { return first_ > 0 || layers_; }
  // These values of pictures [n, c, h, w], f16 [n, ...], without dropout. Throws
  // std::invalid_argument, by the options' names, where the machine's memory cannot hold them.
  Tensor trunk_values(const Tensor& pictures);
  // Identifies all that they depend on beside the pictures: the frozen weights' contents, the
  // config, the first trained block, the pictures' size and scale.
  std::string trunk_identity() const;
  nn::ImageModel& model() const { return *model_; }
  nn::Pretrained& pretrained() { return started_.pretrained; }
  // Size and scale of the pictures that the model takes.
  const nn::ImageInput& input() const { return input_; }
  // True if the classifier is the model's own.
  bool has_own_head() const { return !layers_; }

 private:
  Var values(const Var& pictures);

  samples::StartedModel started_;
  nn::ImageModel* model_;  // of started_
  nn::ImageInput input_;
  ModelPictures inputs_;
  // The first block that takes inputs; 0: they are pictures; behind all blocks, one more: they are
  // what the classifier takes.
  std::int64_t first_ = 0;
  std::optional<nn::LayerMeans> layers_;
  std::optional<nn::Standardize> standardize_;  // with layers_
  std::optional<nn::Linear> classifier_;        // with layers_
};

}  // namespace sotto::images
