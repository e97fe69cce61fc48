#include "samples/models/resnet.h"

#include "autograd/ops.h"

namespace sotto::models {

NormedConv::NormedConv(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
                       std::int64_t groups)
    : conv_(in, out, kernel, {.stride = {stride}, .padding = {kernel / 2}}, false),
      norm_(groups, out) {}

Var NormedConv::forward(const Var& x) { return norm_(conv_(x)); }

void NormedConv::visit(const nn::Visitor& visitor) {
  visitor("conv", conv_);
  visitor("norm", norm_);
}

Bottleneck::Bottleneck(std::int64_t in, std::int64_t width, std::int64_t stride,
                       std::int64_t groups)
    : reduce_(in, width, 1, 1, groups),
      middle_(width, width, 3, stride, groups),
      expand_(width, expansion * width, 1, 1, groups) {
  if (in != expansion * width || stride != 1)
    shortcut_.emplace(in, expansion * width, 1, stride, groups);
}

Var Bottleneck::forward(const Var& x) {
  Var y = expand_(relu(middle_(relu(reduce_(x)))));
  return relu(std::move(y) + (shortcut_ ? (*shortcut_)(x) : x));
}

void Bottleneck::visit(const nn::Visitor& visitor) {
  visitor("reduce", reduce_);
  visitor("middle", middle_);
  visitor("expand", expand_);
  if (shortcut_) visitor("shortcut", *shortcut_);
}

namespace {

std::int64_t width_of(const ResNetOptions& options, std::size_t stage) {
  return options.width << stage;
}

nn::Sequential blocks_of(const ResNetOptions& options) {
  nn::Sequential blocks;
  std::int64_t in = options.width;
  for (std::size_t stage = 0; stage < options.blocks.size(); ++stage) {
    const std::int64_t width = width_of(options, stage);
    for (std::int64_t block = 0; block < options.blocks[stage]; ++block) {
      const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      blocks.add(Bottleneck(in, width, stride, options.groups));
      in = Bottleneck::expansion * width;
    }
  }
  return blocks;
}

}  // namespace

ResNet::ResNet(const ResNetOptions& options)
    : stem_(options.channels, options.width, options.large_images ? 7 : 3,
            options.large_images ? 2 : 1, options.groups),
      blocks_(blocks_of(options)),
      classifier_(Bottleneck::expansion * width_of(options, options.blocks.size() - 1),
                  options.classes) {
  if (options.large_images)
    pool_.emplace(PoolOptions{.kernel = {3}, .stride = {2}, .padding = {1}});
}

Var ResNet::forward(const Var& x) {
  const Var y = relu(stem_(x));
  return classifier_(mean(blocks_(pool_ ? (*pool_)(y) : y), {2, 3}));
}

void ResNet::visit(const nn::Visitor& visitor) {
  visitor("stem", stem_);
  visitor("blocks", blocks_);
  visitor("classifier", classifier_);
}

}  // namespace sotto::models
