// ViT and DeiT: transformers over the patches of an image.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/models/bicubic.h"
#include "nn/models/encoder_block.h"
#include "nn/models/pretrained_model.h"

namespace sotto::nn {

// Paths of a model's parts. Those without a name are not there.
struct VisionNames {
  std::string cls_token = {}, distillation_token = {}, register_tokens = {};
  std::string positions = {}, patches = {}, blocks = {};
  std::string norm = {};  // in front of the classifier
  std::string head = {}, distillation_head = {};
};

struct VisionTransformerOptions {
  VisionNames names = {};
  std::int64_t channels = 3;
  Shape image{224, 224}, patch{16, 16};  // height and width; pixels that fill no patch are cut off
  std::int64_t registers = 0;            // tokens that no classifier reads (Darcet et al. 2023)
  bool positions_of_patches_only = false;  // the other tokens have no position
  Bicubic resampling = Bicubic::plain;     // of positions, for images of another size
  std::int64_t block_count = 12;
  EncoderBlockOptions block = {};
  double drop_path = 0;          // of the last block; from 0 at the first one in equal steps
  double position_dropout = 0;   // behind the positions
  bool mean_of_patches = false;  // the classifier takes their mean, not the class token
  bool norm_after_mean = false;  // the norm follows the mean
  double head_dropout = 0;
  std::int64_t classes = 0;  // 0: no classifier
};

// Tokens (class; distillation; registers; patches) plus positions through encoder blocks. The
// logits are head(class token), or the mean of head and distillation head of their tokens.
class VisionTransformer final : public ImageModel {
 public:
  explicit VisionTransformer(const VisionTransformerOptions& options);
  Var classify(const Var& features) override;
  // Throws std::invalid_argument for images smaller than a patch.
  void resize_images(const Shape& size) override;
  ModelParts parts() const override;
  void visit(const Visitor& visitor) override;

 private:
  // Throws std::invalid_argument for images of another size than the options'.
  Var stem(const Var& images) override;
  Var through(const Var& x, std::int64_t begin, std::int64_t end) override;
  Var pooled(const Var& x) override;      // [n, features]; [n, 2 features] with a distillation head
  std::int64_t prefix() const;            // tokens in front of the patches
  std::int64_t prefix_positions() const;  // those of them that have a position

  VisionTransformerOptions options_;
  std::unique_ptr<Parameter> cls_token_, distillation_token_, register_tokens_;  // [1, r, features]
  std::unique_ptr<Parameter> positions_;                                         // [1, t, features]
  std::unique_ptr<Module> patches_;
  std::vector<std::unique_ptr<EncoderBlock>> blocks_;
  LayerNorm norm_;
  std::unique_ptr<Module> head_, distillation_head_;
};

}  // namespace sotto::nn
