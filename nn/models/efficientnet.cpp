#include "nn/models/efficientnet.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "autograd/ops/elementwise.h"
#include "autograd/ops/reductions.h"
#include "nn/models/model_blocks.h"

namespace sotto::nn {

namespace {

// The stages of EfficientNet-B0 (Tan and Le 2019, table 1), which the others scale.
struct Stage {
  std::int64_t blocks, kernel, stride, expansion, out;
};
constexpr std::array<Stage, 7> lite_stages{{{1, 3, 1, 1, 16},
                                            {2, 3, 2, 6, 24},
                                            {2, 5, 2, 6, 40},
                                            {3, 3, 2, 6, 80},
                                            {3, 5, 1, 6, 112},
                                            {4, 5, 2, 6, 192},
                                            {1, 3, 1, 6, 320}}};

// Multiples of 8, no less than nine tenths of the channels.
std::int64_t rounded_channels(double channels) {
  const std::int64_t nearest =
      std::max<std::int64_t>(8, static_cast<std::int64_t>(channels + 4) / 8 * 8);
  return static_cast<double>(nearest) < 0.9 * channels ? nearest + 8 : nearest;
}

// x' + project(relu6(depthwise(relu6(expand(x))))), without `expand` where it would not widen; x'
// is x if the shapes agree, otherwise nothing. Each is a convolution with its norm.
class InvertedResidual final : public Module {
 public:
  // A block of the network, whose branch is dropped at this rate.
  InvertedResidual(const InvertedResidualOptions& options, const EfficientNetOptions& network,
                   double drop_path);
  Var forward(const Var& x) override;
  void visit(const Visitor& visitor) override;

 private:
  std::optional<NormedConv> expand_;
  NormedConv depthwise_, project_;
  bool residual_, timm_names_;
  double drop_path_;
};

// The padding of a convolution of the network.
ConvOptions padded(const EfficientNetOptions& network, std::int64_t kernel, std::int64_t stride) {
  if (network.same_padding) return {.stride = {stride}, .same = true};
  return {.stride = {stride}, .padding = {kernel / 2}};
}

InvertedResidual::InvertedResidual(const InvertedResidualOptions& options,
                                   const EfficientNetOptions& network, double drop_path)
    : residual_(options.stride == 1 && options.in == options.out),
      timm_names_(network.timm_names),
      drop_path_(drop_path) {
  const auto& [in, out, inner, kernel, stride] = options;
  const ConvNorm& norm = network.norm;
  if (inner != in) expand_.emplace(in, inner, 1, ConvOptions{}, norm);
  ConvOptions depthwise = padded(network, kernel, stride);
  depthwise.groups = inner;
  depthwise_ = NormedConv(inner, inner, kernel, depthwise, norm);
  project_ = NormedConv(inner, out, 1, {}, norm);
}

Var InvertedResidual::forward(const Var& x) {
  Var y = expand_ ? relu6((*expand_)(x)) : x;
  y = project_(relu6(depthwise_(y)));
  return residual_ ? drop_path(std::move(y), drop_path_) + x : y;
}

void InvertedResidual::visit(const Visitor& visitor) {
  std::array<const char*, 6> names{"_expand_conv", "_bn0",          "_depthwise_conv",
                                   "_bn1",         "_project_conv", "_bn2"};
  if (timm_names_) names = {"conv_pw", "bn1", "conv_dw", "bn2", "conv_pwl", "bn3"};
  if (timm_names_ && !expand_) names = {"", "", "conv_dw", "bn1", "conv_pw", "bn2"};
  if (expand_) {
    visitor(names[0], expand_->conv);
    visitor(names[1], expand_->norm);
  }
  visitor(names[2], depthwise_.conv);
  visitor(names[3], depthwise_.norm);
  visitor(names[4], project_.conv);
  visitor(names[5], project_.norm);
}

}  // namespace

EfficientNetOptions parse_efficientnet(const std::string& name) {
  struct Scale {
    double width, depth;
  };
  constexpr std::array<Scale, 5> scales{{{1, 1}, {1, 1.1}, {1.1, 1.2}, {1.2, 1.4}, {1.4, 1.8}}};
  const std::string prefix = "efficientnet_lite";
  const bool known = name.size() == prefix.size() + 1 && name.starts_with(prefix) &&
                     name.back() >= '0' && name.back() <= '4';
  check(known, "EfficientNet: none is called {}", name);
  const auto [width, depth] = scales[static_cast<std::size_t>(name.back() - '0')];
  EfficientNetOptions options;
  std::int64_t in = options.stem;
  for (const Stage& stage : lite_stages) {
    const bool scaled = &stage != &lite_stages.front() && &stage != &lite_stages.back();
    const double blocks = static_cast<double>(stage.blocks) * (scaled ? depth : 1);
    const std::int64_t out = rounded_channels(static_cast<double>(stage.out) * width);
    std::vector<InvertedResidualOptions>& all = options.stages.emplace_back();
    for (std::int64_t k = 0; k < static_cast<std::int64_t>(std::ceil(blocks)); ++k) {
      all.push_back({.in = in,
                     .out = out,
                     .inner = stage.expansion * in,
                     .kernel = stage.kernel,
                     .stride = k == 0 ? stage.stride : 1});
      in = out;
    }
  }
  return options;
}

EfficientNet::EfficientNet(const EfficientNetOptions& options)
    : stem_(options.channels, options.stem, 3, padded(options, 3, 2), options.norm),
      timm_names_(options.timm_names),
      dropout_(options.dropout) {
  std::int64_t in = options.stem, number = 0, count = 0;
  for (const auto& blocks : options.stages) count += std::ssize(blocks);
  for (const std::vector<InvertedResidualOptions>& blocks : options.stages) {
    Sequential stage;
    for (const InvertedResidualOptions& block : blocks) {
      check(block.in == in, "EfficientNet: a block of {} channels follows {}", block.in, in);
      const double depth = static_cast<double>(number++) / static_cast<double>(count);
      (timm_names_ ? stage : blocks_)
          .add(InvertedResidual(block, options, options.drop_path * depth));
      in = block.out;
    }
    if (timm_names_) blocks_.add(std::move(stage));
    stages_.push_back(std::ssize(blocks));
  }
  head_ = NormedConv(in, options.features, 1, {}, options.norm);
  fc_ = std::make_unique<Linear>(options.features, options.classes);
}

Var EfficientNet::stem(const Var& images) { return relu6(stem_(images)); }

Var EfficientNet::through(const Var& x, std::int64_t begin, std::int64_t end) {
  if (begin == 0 && end == parts().block_count) return blocks_(x);
  std::vector<Sequential*> stages{&blocks_};
  if (timm_names_) {
    stages.clear();
    for (int k = 0; k < blocks_.size(); ++k)
      stages.push_back(dynamic_cast<Sequential*>(&blocks_[k]));
  }
  return through_stages(stages, x, begin, end);
}

Var EfficientNet::pooled(const Var& x) { return mean(relu6(head_(x)), {2, 3}); }

Var EfficientNet::classify(const Var& features) { return (*fc_)(dropout(features, dropout_)); }

void EfficientNet::visit(const Visitor& visitor) {
  visitor(timm_names_ ? "conv_stem" : "_conv_stem", stem_.conv);
  visitor(timm_names_ ? "bn1" : "_bn0", stem_.norm);
  visitor(timm_names_ ? "blocks" : "_blocks", blocks_);
  visitor(timm_names_ ? "conv_head" : "_conv_head", head_.conv);
  visitor(timm_names_ ? "bn2" : "_bn1", head_.norm);
  visitor(timm_names_ ? "classifier" : "_fc", fc_);
}

ModelParts EfficientNet::parts() const {
  ModelParts parts;
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
    for (std::int64_t k = 0; k < stages_[stage]; ++k, ++parts.block_count) {
      parts.listed.push_back(timm_names_ ? fmt::format("blocks.{}.{}", stage, k)
                                         : fmt::format("_blocks.{}", parts.block_count));
    }
  }
  parts.embeddings = {"_conv_stem", "_bn0"};
  parts.head = {"_fc"};
  if (timm_names_) {
    parts.embeddings = {"conv_stem", "bn1"};
    parts.head = {"classifier"};
  }
  return parts;
}

}  // namespace sotto::nn
