#include "nn/models/wide_resnet.h"

#include <cmath>
#include <optional>

#include "autograd/ops/elementwise.h"
#include "autograd/ops/reductions.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/functional.h"
#include "nn/init.h"
#include "nn/layers/conv_pool_layers.h"
#include "nn/layers/dense_layers.h"

namespace sotto::nn {

namespace {

// A convolution whose weights are standardised and divided by the root of the fan-in, with a gain
// and a bias for each output channel (Brock et al. 2021, "Characterizing signal propagation to
// close the performance gap in unnormalized ResNets", section 4).
class StandardizedConv final : public Module {
 public:
  StandardizedConv(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride)
      : inner_(in, out, kernel, {.stride = {stride}, .padding = {kernel / 2}}),
        gain_(std::make_unique<Parameter>(full({out, 1, 1, 1}, 1))) {
    inner_.weight->value = kaiming_normal(inner_.weight->value.shape(), {.gain = 1});
    inner_.bias->value = full({out}, 0);
  }
  Var forward(const Var& x) override {
    constexpr double min_variance = 1e-4;  // of the weights times the fan-in (De et al. 2022)
    Tape& tape = x.tape();
    const auto fan_in = static_cast<double>(fans(inner_.weight->value.shape()).in);
    const Var w = standardized_weight(tape.use(*inner_.weight), min_variance / fan_in,
                                      tape.use(*gain_) * (1 / std::sqrt(fan_in)));
    return conv(x, w, tape.use(*inner_.bias), inner_.options());
  }
  void visit(const Visitor& visitor) override {
    inner_.visit(visitor);
    visitor("gain", gain_);
  }

 private:
  Conv2d inner_;
  std::unique_ptr<Parameter> gain_;  // [out, 1, 1, 1]
};

// The channels of a block's convolutions, and the stride of its first one.
struct BlockSizes {
  std::int64_t in, out, stride, groups;
};

// conv(norm(relu(x))), whose norm comes after the activation (De et al. 2022).
class ReluNormConv final : public Module {
 public:
  ReluNormConv(const BlockSizes& sizes, std::int64_t kernel)
      : norm_(sizes.groups, sizes.in), conv_(sizes.in, sizes.out, kernel, sizes.stride) {}
  Var forward(const Var& x) override { return conv_(norm_(relu(x))); }
  void visit(const Visitor& visitor) override {
    visitor("norm", norm_);
    visitor("conv", conv_);
  }

 private:
  GroupNorm norm_;
  StandardizedConv conv_;
};

// second(first(x)) + x, or + shortcut(x) where the width changes; each with a norm of its own.
class WideBlock final : public Module {
 public:
  explicit WideBlock(const BlockSizes& sizes)
      : first_(sizes, 3), second_({sizes.out, sizes.out, 1, sizes.groups}, 3) {
    if (sizes.in != sizes.out) shortcut_.emplace(sizes, 1);
  }
  Var forward(const Var& x) override {
    const Var y = second_(first_(x));
    return y + (shortcut_ ? (*shortcut_)(x) : x);
  }
  void visit(const Visitor& visitor) override {
    visitor("first", first_);
    visitor("second", second_);
    if (shortcut_) visitor("shortcut", *shortcut_);
  }

 private:
  ReluNormConv first_, second_;
  std::optional<ReluNormConv> shortcut_;
};

}  // namespace

WideResNet::WideResNet(const WideResNetOptions& options) {
  constexpr std::int64_t stem = 16, layers_outside = 4, layers_each = 6, stages = 3;
  const std::int64_t each = (options.depth - layers_outside) / layers_each;
  check(each >= 1 && each * layers_each + layers_outside == options.depth && options.widening >= 1,
        "WideResNet: depth {}, widening {}", options.depth, options.widening);
  conv_ = std::make_unique<StandardizedConv>(options.channels, stem, 3, 1);
  std::int64_t channels = stem;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    const std::int64_t width = (stem * options.widening) << stage;
    for (std::int64_t block = 0; block < each; ++block) {
      const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      blocks_.add(WideBlock({channels, width, stride, options.groups}));
      channels = width;
    }
  }
  norm_ = std::make_unique<GroupNorm>(options.groups, channels);
  auto classifier = std::make_unique<Linear>(channels, options.classes);
  classifier->weight->value = kaiming_normal(classifier->weight->value.shape(), {.gain = 1});
  classifier->bias->value = full({options.classes}, 0);
  fc_ = std::move(classifier);
}

Var WideResNet::stem(const Var& images) { return (*conv_)(images); }

Var WideResNet::through(const Var& x, std::int64_t begin, std::int64_t end) {
  Sequential* const stage = &blocks_;
  return through_stages({&stage, 1}, x, begin, end);
}

Var WideResNet::pooled(const Var& x) { return mean((*norm_)(relu(x)), {2, 3}); }

Var WideResNet::classify(const Var& features) { return (*fc_)(features); }

void WideResNet::visit(const Visitor& visitor) {
  visitor("conv", *conv_);
  visitor("blocks", blocks_);
  visitor("norm", *norm_);
  visitor("fc", fc_);
}

ModelParts WideResNet::parts() const {
  return {
      .embeddings = {"conv"}, .blocks = "blocks", .block_count = blocks_.size(), .head = {"fc"}};
}

}  // namespace sotto::nn
