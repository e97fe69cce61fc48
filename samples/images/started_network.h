// A published model of pictures as a network: of pictures in [0, 1], or, where its classifier alone
// is trained, of the features before it.
#pragma once

#include <memory>

#include "nn/module.h"
#include "samples/images/model_pictures.h"
#include "samples/pretrained/start.h"

namespace sotto::images {

class StartedNetwork final : public nn::Module {
 public:
  // `size`: the side that pictures are resized to; 0: the model's own.
  StartedNetwork(const samples::Start& start, const nn::PretrainedOptions& options,
                 std::int64_t size);
  Var forward(const Var& x) override;
  void visit(const nn::Visitor& visitor) override { model().visit(visitor); }

  // Whether inputs are features: no parameter is trained before the classifier.
  bool of_features() const { return of_features_; }
  // The features of pictures [n, c, h, w], f16 [n, width], computed once.
  Tensor features(const Tensor& pictures);
  nn::ImageModel& model() const { return *model_; }
  const nn::Pretrained& pretrained() const { return started_.pretrained; }

 private:
  samples::StartedModel started_;
  nn::ImageModel* model_;  // of started_
  ModelPictures inputs_;
  bool of_features_;
};

}  // namespace sotto::images
