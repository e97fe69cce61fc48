#include "nn/models/vision_transformer.h"

#include "autograd/ops.h"
#include "autograd/precision.h"
#include "nn/init.h"
#include "nn/layers/conv_pool_layers.h"
#include "nn/models/model_blocks.h"

namespace sotto::nn {

namespace {

// A parameter [1, rows, features], normal with the deviation that ViT's publishers use.
std::unique_ptr<Parameter> drawn(std::int64_t rows, std::int64_t features) {
  constexpr double deviation = 0.02;
  return std::make_unique<Parameter>(random_normal({1, rows, features}, 0, deviation));
}

// Rows and columns of patches.
Shape grid_of(const Shape& image, const Shape& patch) {
  const Shape grid{image[0] / patch[0], image[1] / patch[1]};
  check(grid[0] >= 1 && grid[1] >= 1, "ViT: patches {} in images {}", patch, image);
  return grid;
}

// The token, which is shared: beside batched patches it stands for each sample.
void append(std::vector<Var>& parts, const std::unique_ptr<Parameter>& token, const Var& patches) {
  if (!token) return;
  const Var value = patches.tape().use(*token);
  const std::int64_t rows = patches.samples().batched() ? 1 : patches.shape()[0];
  parts.push_back(expand(value, {rows, value.shape()[1], value.shape()[2]}));
}

}  // namespace

VisionTransformer::VisionTransformer(const VisionTransformerOptions& options)
    : options_(options),
      patches_(std::make_unique<Conv2d>(options.channels, options.block.features, options.patch,
                                        ConvOptions{.stride = options.patch})),
      norm_(options.block.features, {.eps = options.block.norm_eps}) {
  const std::int64_t features = options.block.features;
  const VisionNames& names = options.names;
  if (!names.cls_token.empty()) cls_token_ = drawn(1, features);
  if (!names.distillation_token.empty()) distillation_token_ = drawn(1, features);
  if (options.registers > 0) register_tokens_ = drawn(options.registers, features);
  positions_ = drawn(grid_of(options.image, options.patch).numel() + prefix_positions(), features);
  for (std::int64_t k = 0; k < options.block_count; ++k) {
    EncoderBlockOptions block = options.block;
    const std::int64_t last = options.block_count - 1;
    if (last > 0)
      block.drop_path = options.drop_path * static_cast<double>(k) / static_cast<double>(last);
    blocks_.push_back(std::make_unique<EncoderBlock>(block));
  }
  if (options.classes == 0) return;
  head_ = linear_child(features, options.classes);
  if (!names.distillation_head.empty())
    distillation_head_ = linear_child(features, options.classes);
}

std::int64_t VisionTransformer::prefix() const {
  return (cls_token_ ? 1 : 0) + (distillation_token_ ? 1 : 0) + options_.registers;
}

std::int64_t VisionTransformer::prefix_positions() const {
  return options_.positions_of_patches_only ? 0 : prefix();
}

void VisionTransformer::resize_images(const Shape& size) {
  const Shape from = grid_of(options_.image, options_.patch), to = grid_of(size, options_.patch);
  options_.image = size;
  if (from == to) return;
  positions_->value =
      bicubic_table(positions_->value, prefix_positions(), from, to, options_.resampling);
  positions_->value.relabel({.kind = MemoryKind::parameter});
}

Var VisionTransformer::stem(const Var& images) {
  const Shape& shape = images.shape();
  check(images.rank() == 4 && shape[1] == options_.channels && shape[2] == options_.image[0] &&
            shape[3] == options_.image[1],
        "ViT: images {} for a model of {} channels and images {}", shape, options_.channels,
        options_.image);
  const Var positions = images.tape().use(*positions_);
  Var patches = to_f32(transpose(flatten((*patches_)(images), 2), 1, 2));
  if (options_.positions_of_patches_only) patches = patches + positions;
  std::vector<Var> parts;
  append(parts, cls_token_, patches);
  append(parts, distillation_token_, patches);
  append(parts, register_tokens_, patches);
  parts.push_back(patches);
  const Var x = parts.size() == 1 ? patches : concat(parts, 1);
  return dropout(options_.positions_of_patches_only ? x : x + positions, options_.position_dropout);
}

Var VisionTransformer::through(const Var& x, std::int64_t begin, std::int64_t end) {
  Var y = x;
  for (std::int64_t k = begin; k < end; ++k) y = (*blocks_[static_cast<std::size_t>(k)])(y);
  return y;
}

Var VisionTransformer::pooled(const Var& x) {
  if (options_.mean_of_patches) {
    const Var y = options_.norm_after_mean ? x : norm_(x);
    const Var average = mean(slice(y, 1, prefix(), y.shape()[1]), {1});
    return options_.norm_after_mean ? norm_(average) : average;
  }
  // A norm is of one token: those that no classifier reads need none.
  if (options_.names.distillation_head.empty()) return norm_(select(x, 1, 0));
  return flatten(norm_(slice(x, 1, 0, 2)), 1, 2);
}

Var VisionTransformer::classify(const Var& features) {
  const Var x = head_ ? dropout(features, options_.head_dropout) : features;
  const auto of = [](const std::unique_ptr<Module>& head, const Var& token) {
    return head ? (*head)(token) : token;
  };
  if (options_.names.distillation_head.empty()) return of(head_, x);
  const std::vector<Var> both = chunk(x, 1, 2);
  return (of(head_, both[0]) + of(distillation_head_, both[1])) * 0.5;
}

ModelParts VisionTransformer::parts() const {
  const VisionNames& names = options_.names;
  ModelParts parts{.embeddings = {names.patches, names.positions},
                   .blocks = names.blocks,
                   .block_count = options_.block_count};
  if (cls_token_) parts.embeddings.push_back(names.cls_token);
  if (distillation_token_) parts.embeddings.push_back(names.distillation_token);
  if (register_tokens_) parts.embeddings.push_back(names.register_tokens);
  if (head_) parts.head.push_back(names.head);
  if (distillation_head_) parts.head.push_back(names.distillation_head);
  return parts;
}

void VisionTransformer::visit(const Visitor& visitor) {
  const VisionNames& names = options_.names;
  visitor(names.cls_token, cls_token_);
  visitor(names.distillation_token, distillation_token_);
  visitor(names.register_tokens, register_tokens_);
  visitor(names.positions, positions_);
  visitor(names.patches, patches_);
  for (std::size_t k = 0; k < blocks_.size(); ++k)
    visitor(names.blocks + "." + std::to_string(k), *blocks_[k]);
  visitor(names.norm, norm_);
  visitor(names.head, head_);
  visitor(names.distillation_head, distillation_head_);
}

}  // namespace sotto::nn
