#include "nn/models/frozen_norm.h"

#include <cmath>
#include <functional>
#include <utility>

#include "autograd/ops/elementwise.h"
#include "autograd/ops/shape_ops.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/convert.h"
#include "nn/models/normed_conv.h"

namespace sotto::nn {

namespace {

// Stands where a batch norm was folded into the convolution before it, and returns its input.
class FoldedBatchNorm final : public Module {
 public:
  explicit FoldedBatchNorm(double eps) : eps_(eps) {}
  Var forward(const Var& x) override { return x; }
  double eps() const { return eps_; }  // of the batch norm

 private:
  double eps_;
};

using Values = std::vector<double>;

Values values_of(const Tensor& x) { return to_dtype(x, Dtype::f64).to_vector<double>(); }

Tensor like(const Tensor& x, const Values& values) {
  return to_dtype(Tensor::from(values, x.shape()), x.dtype()).to(x.device());
}

// A child that its owner holds by pointer, its path, and the one that the owner shows before it.
struct Sibling {
  std::string path;
  std::unique_ptr<Module>& child;
  Module* before;
};

void for_each_sibling(const std::string& path, Module& owner,
                      const std::function<void(const Sibling&)>& f) {
  Module* before = nullptr;
  owner.visit(Visitor([](const std::string&, Parameter&) {},
                      [&](const std::string& name, Module& child) {
                        for_each_sibling(path + name + ".", child, f);
                        before = nullptr;
                      },
                      [&](const std::string& name, std::unique_ptr<Module>& child) {
                        for_each_sibling(path + name + ".", *child, f);
                        f({path + name, child, before});
                        before = child.get();
                      }));
}

Conv2d& convolution_before(const Sibling& place) {
  auto* const conv = dynamic_cast<Conv2d*>(place.before);
  check(conv, "convert_batch_norms: {} does not follow a convolution", place.path);
  return *conv;
}

// w[o] scale[o], and (b[o] - mean[o]) scale[o] + bias[o].
void fold(const FrozenBatchNorm& norm, Conv2d& conv) {
  Values scale = values_of(norm.weight->value), shift = values_of(norm.bias->value);
  const Values mean = values_of(norm.running_mean), variance = values_of(norm.running_var);
  const Values b = conv.bias ? values_of(conv.bias->value) : Values(mean.size());
  for (std::size_t c = 0; c < scale.size(); ++c) {
    check(!(variance[c] < 0), "convert_batch_norms: a variance of {}", variance[c]);
    scale[c] /= std::sqrt(variance[c] + norm.eps());
    shift[c] += (b[c] - mean[c]) * scale[c];
  }
  Values w = values_of(conv.weight->value);
  const std::size_t each = w.size() / scale.size();
  for (std::size_t i = 0; i < w.size(); ++i) w[i] *= scale[i / each];
  conv.weight->value = like(conv.weight->value, w);
  conv.bias = std::make_unique<Parameter>(like(norm.bias->value, shift));
  conv.bias->trainable = conv.weight->trainable;
}

}  // namespace

FrozenBatchNorm::FrozenBatchNorm(std::int64_t channels, double eps) : eps_(eps) {
  check(channels >= 1, "FrozenBatchNorm: {} channels", channels);
  weight = std::make_unique<Parameter>(full({channels}, 1));
  bias = std::make_unique<Parameter>(full({channels}, 0));
  running_mean = full({channels}, 0);
  running_var = full({channels}, 1);
}

Var FrozenBatchNorm::forward(const Var& x) {
  const std::int64_t channels = weight->value.numel();
  check(x.rank() >= 2 && x.shape()[1] == channels, "FrozenBatchNorm: input {} without {} channels",
        x.shape(), channels);
  Tape& tape = x.tape();
  const Var w = tape.use(*weight);
  const auto constant = [&](Tensor& statistic) {
    statistic = statistic.to(weight->value.device());
    return tape.constant(to_dtype(statistic, w.dtype()));
  };
  const Var scale = w / sqrt(constant(running_var) + eps_);
  const Var shift = tape.use(*bias) - constant(running_mean) * scale;
  Shape by_channel = Shape::filled(x.rank() - 1, 1);
  by_channel[0] = channels;
  return x * reshape(scale, by_channel) + reshape(shift, by_channel);
}

void FrozenBatchNorm::visit(const Visitor& visitor) {
  visitor("weight", weight);
  visitor("bias", bias);
}

void FrozenBatchNorm::visit_statistics(
    const std::function<void(const std::string& name, Tensor& value)>& f) {
  f("running_mean", running_mean);
  f("running_var", running_var);
}

void convert_batch_norms(Module& model, StoredNorms to, std::int64_t groups) {
  constexpr std::int64_t usual_groups = 32;  // Wu and He 2018
  check(groups >= 0, "convert_batch_norms: {} groups", groups);
  if (to == StoredNorms::frozen) return;
  for_each_sibling("", model, [&](const Sibling& place) {
    const auto* const norm = dynamic_cast<FrozenBatchNorm*>(place.child.get());
    if (!norm) return;
    const std::int64_t channels = norm->weight->value.numel();
    if (to == StoredNorms::folded) {
      Conv2d& conv = convolution_before(place);
      check(conv.weight->value.size(0) == channels,
            "convert_batch_norms: {} has {} channels, not {}", place.path, channels,
            conv.weight->value.size(0));
      fold(*norm, conv);
      place.child = std::make_unique<FoldedBatchNorm>(norm->eps());
    } else {
      place.child = std::make_unique<GroupNorm>(
          group_norm_for_batch_norm(norm->weight->value, norm->bias->value,
                                    norm_groups(channels, groups > 0 ? groups : usual_groups)));
    }
  });
}

UnfoldedBatchNorms::UnfoldedBatchNorms(Module& model) {
  for_each_sibling("", model, [&](const Sibling& place) {
    const auto* const folded = dynamic_cast<FoldedBatchNorm*>(place.child.get());
    if (!folded) return;
    Conv2d& conv = convolution_before(place);
    const Tensor& bias = conv.bias->value;
    auto norm = std::make_unique<FrozenBatchNorm>(bias.numel(), folded->eps());
    norm->weight->value =
        like(bias, Values(static_cast<std::size_t>(bias.numel()), std::sqrt(1 + folded->eps())));
    norm->bias = std::move(conv.bias);
    places_.push_back({&place.child, std::exchange(place.child, std::move(norm)), &conv});
  });
}

UnfoldedBatchNorms::~UnfoldedBatchNorms() {
  for (Place& place : places_) {
    place.conv->bias = std::move(dynamic_cast<FrozenBatchNorm&>(**place.norm).bias);
    *place.norm = std::move(place.folded);
  }
}

}  // namespace sotto::nn
