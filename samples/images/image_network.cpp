#include "samples/images/image_network.h"

#include <algorithm>
#include <cmath>

#include <sotto/autograd/precision.h>
#include <sotto/core/error.h>
#include <sotto/core/half.h>
#include <sotto/core/threads/parallel.h>
#include <sotto/nn/data/images/scattering.h>
#include <sotto/nn/layers.h>
#include "samples/models/workloads.h"

namespace sotto::images {

namespace {

constexpr std::int64_t max_size = 496;  // that of scattering_features()
constexpr std::int64_t pictures_at_once = 512;
constexpr std::int64_t pixels_for_a_feature = 4;  // along an axis
constexpr std::int64_t patch = 4;

// Columns of features that are kept.
std::int64_t columns_of(const NetworkOptions& options) {
  const std::int64_t columns = options.shape.size / pixels_for_a_feature;
  return options.mirror ? (columns + 1) / 2 : columns;
}

std::int64_t feature_count(const NetworkOptions& options) {
  return scattering_paths * options.shape.channels * (options.shape.size / pixels_for_a_feature) *
         columns_of(options);
}

Tensor mirrored(const Tensor& pictures) {
  Tensor y = Tensor::empty(pictures.shape());
  const std::int64_t width = pictures.shape().back();
  const auto* const from = pictures.data<float>();
  auto* const to = y.data<float>();
  for (std::int64_t row = 0; row < pictures.numel() / width; ++row)
    std::reverse_copy(from + row * width, from + (row + 1) * width, to + row * width);
  return y;
}

// The features of one picture in f32, [channels, rows, columns], of which some columns are kept.
class FeatureWriter {
 public:
  explicit FeatureWriter(const NetworkOptions& options)
      : rows_(options.shape.size / pixels_for_a_feature),
        columns_(columns_of(options)),
        group_(feature_count(options) / options.groups),
        groups_(options.groups) {}

  // `other` are the features of the mirror image, or null.
  void write(const float* features, const float* other, f16* to) const {
    std::vector<float> group(static_cast<std::size_t>(group_));
    for (std::int64_t g = 0; g < groups_; ++g) {
      for (std::int64_t k = 0; k < group_; ++k) {
        const std::int64_t at = place(g * group_ + k);
        group[static_cast<std::size_t>(k)] = other ? (features[at] + other[at]) / 2 : features[at];
      }
      normalize(group);
      for (const float value : group) *to++ = f16(value);
    }
  }

 private:
  std::int64_t place(std::int64_t kept) const { return kept / columns_ * rows_ + kept % columns_; }
  static void normalize(std::vector<float>& values) {
    constexpr double least_variance = 1e-5;
    double sum = 0, squares = 0;
    for (const float value : values) {
      sum += value;
      squares += static_cast<double>(value) * value;
    }
    const double n = static_cast<double>(values.size()), mean = sum / n;
    const double scale = 1 / std::sqrt(std::max(0.0, squares / n - mean * mean) + least_variance);
    for (float& value : values) value = static_cast<float>((value - mean) * scale);
  }

  std::int64_t rows_, columns_;  // pictures are square: a feature map has rows_ columns, too
  std::int64_t group_, groups_;
};

Tensor features_of(const Tensor& pictures, const NetworkOptions& options) {
  const std::int64_t n = pictures.size(0), count = feature_count(options);
  Tensor y = Tensor::empty({n, count}, Dtype::f16);
  auto* const to = y.data<f16>();
  const FeatureWriter writer(options);
  for (std::int64_t first = 0; first < n; first += pictures_at_once) {
    const Tensor part = pictures.slice(0, first, std::min(n, first + pictures_at_once));
    const Tensor all = scattering_features(part);
    const Tensor other = options.mirror ? scattering_features(mirrored(part)) : Tensor();
    const std::int64_t stride = all.numel() / all.size(0);
    parallel_for(all.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t k = begin; k < end; ++k) {
        writer.write(all.data<float>() + k * stride,
                     options.mirror ? other.data<float>() + k * stride : nullptr,
                     to + (first + k) * count);
      }
    });
  }
  return y;
}

// Features are kept in 16 bits, and computed with in 32.
class ToF32 final : public nn::Module {
 public:
  Var forward(const Var& x) override { return cast(x, Dtype::f32); }
};

}  // namespace

std::vector<std::string> network_names() {
  return {"scattering", "cnn", "resnet18", "wrn-16-4", "vit-tiny"};
}

void check_network(const NetworkOptions& options) {
  const std::int64_t size = options.shape.size;
  check(size >= 8 && size <= max_size, "--size: {} is not from 8 to {}", size, max_size);
  if (options.model == "scattering") {
    check(size % pixels_for_a_feature == 0, "--size: {} is not a multiple of {} (for scattering)",
          size, pixels_for_a_feature);
    check(options.groups >= 1 && scattering_paths % options.groups == 0,
          "--groups: {} does not divide the {} paths of a channel", options.groups,
          scattering_paths);
  }
  check(options.model == "scattering" || !options.mirror, "--mirror: needs --model scattering");
  check(options.model != "vit-tiny" || size % patch == 0,
        "--size: {} is not a multiple of {} (for vit-tiny)", size, patch);
}

std::unique_ptr<nn::Module> make_network(const NetworkOptions& options) {
  check_network(options);
  const models::PictureOptions pictures{options.shape.channels, options.classes};
  if (options.model == "cnn") return models::cifar_network(pictures, models::CifarActivation::tanh);
  if (options.model == "resnet18") return models::resnet18(pictures);
  if (options.model == "wrn-16-4") return models::wide_resnet(pictures);
  if (options.model == "vit-tiny") {
    return models::vision_transformer({.side = options.shape.size,
                                       .patch = patch,
                                       .classes = options.classes,
                                       .channels = options.shape.channels});
  }
  check(options.model == "scattering", "--model: no network is called {}", options.model);
  return std::make_unique<nn::Sequential>(
      nn::Sequential{ToF32(), nn::Linear(feature_count(options), options.classes)});
}

Tensor network_inputs(const Tensor& pictures, const NetworkOptions& options) {
  return options.model == "scattering" ? features_of(pictures, options) : pictures;
}

}  // namespace sotto::images
