#include "samples/images/features.h"

#include <algorithm>
#include <cmath>

#include "core/half.h"
#include "core/threads/parallel.h"
#include "nn/data/images/scattering.h"
#include "samples/images/shapes.h"

namespace sotto::images {

namespace {

constexpr std::int64_t pictures_at_once = 512;
constexpr std::int64_t pixels_for_a_feature = 4;  // along an axis
constexpr double least_variance = 1e-8;

Tensor mirrored(const Tensor& pictures) {
  Tensor y = Tensor::empty(pictures.shape());
  const std::int64_t width = pictures.shape().back();
  const auto* const from = pictures.data<float>();
  auto* const to = y.data<float>();
  for (std::int64_t row = 0; row < pictures.numel() / width; ++row)
    std::reverse_copy(from + row * width, from + (row + 1) * width, to + row * width);
  return y;
}

std::int64_t kept_columns(const PictureShape& shape, const FeatureOptions& options) {
  const std::int64_t columns = shape.size / pixels_for_a_feature;
  return options.mirror ? (columns + 1) / 2 : columns;
}

}  // namespace

// The sums from which a mean and a deviation follow.
class Features::Moments {
 public:
  void add(std::span<const float> values) {
    for (const float value : values) {
      sum_ += value;
      squares_ += static_cast<double>(value) * value;
    }
    count_ += static_cast<double>(values.size());
  }
  Scale scale() const {
    const double mean = sum_ / count_;
    const double variance = std::max(0.0, squares_ / count_ - mean * mean);
    return {mean, 1 / std::sqrt(variance + least_variance)};
  }

 private:
  double sum_ = 0, squares_ = 0, count_ = 0;
};

Shape feature_shape(const PictureShape& shape, const FeatureOptions& options) {
  return {scattering_paths * shape.channels, shape.size / pixels_for_a_feature,
          kept_columns(shape, options)};
}

Features::Features(const PictureShape& shape, const FeatureOptions& options)
    : shape_(shape), options_(options) {
  constexpr std::int64_t pixels = 1 << 18, fewest = 8, most = 256;
  if (options.groups > 0) return;
  const std::int64_t pictures = std::clamp(pixels / (shape.size * shape.size), fewest, most);
  channels_ = scales_of(draw_discs(shape, pictures));
}

// Calls use(k, features) for each picture, on all threads, with the square roots of its transform:
// [channels, rows, kept columns].
void Features::each_picture(
    const Tensor& pictures,
    const std::function<void(std::int64_t k, std::span<float> features)>& use) const {
  const std::int64_t n = pictures.size(0), count = feature_shape(shape_, options_).numel();
  const std::int64_t columns = shape_.size / pixels_for_a_feature;
  const std::int64_t kept = kept_columns(shape_, options_);
  for (std::int64_t first = 0; first < n; first += pictures_at_once) {
    const Tensor part = pictures.slice(0, first, std::min(n, first + pictures_at_once));
    const Tensor all = scattering_features(part);
    const Tensor other = options_.mirror ? scattering_features(mirrored(part)) : all;
    const std::int64_t stride = all.numel() / all.size(0);
    parallel_for(all.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> features(static_cast<std::size_t>(count));
      for (std::int64_t k = begin; k < end; ++k) {
        const float* const a = all.data<float>() + k * stride;
        const float* const b = other.data<float>() + k * stride;
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t at = i / kept * columns + i % kept;
          features[static_cast<std::size_t>(i)] = std::sqrt(std::max(0.0F, (a[at] + b[at]) / 2));
        }
        use(first + k, features);
      }
    });
  }
}

// The mean and 1 / deviation of each channel.
std::vector<Features::Scale> Features::scales_of(const Tensor& pictures) const {
  std::vector<std::vector<float>> all(static_cast<std::size_t>(pictures.size(0)));
  each_picture(pictures, [&](std::int64_t k, std::span<float> features) {
    all[static_cast<std::size_t>(k)].assign(features.begin(), features.end());
  });
  const auto channels = static_cast<std::size_t>(scattering_paths * shape_.channels);
  const std::size_t width = all.front().size() / channels;
  std::vector<Scale> scales;
  for (std::size_t c = 0; c < channels; ++c) {
    Moments moments;
    for (const std::vector<float>& features : all)
      moments.add(std::span(features).subspan(c * width, width));
    scales.push_back(moments.scale());
  }
  return scales;
}

void Features::rescale(std::span<float> features, const Scale& scale) {
  for (float& value : features) value = static_cast<float>((value - scale.mean) * scale.factor);
}

Tensor Features::operator()(const Tensor& pictures) const {
  Shape shape = feature_shape(shape_, options_);
  const std::int64_t count = shape.numel();
  shape.insert(0, pictures.size(0));
  const auto parts =
      channels_.empty() ? static_cast<std::size_t>(options_.groups) : channels_.size();
  Tensor y = Tensor::empty(shape, Dtype::f16);
  auto* const to = y.data<f16>();
  each_picture(pictures, [&](std::int64_t k, std::span<float> features) {
    const std::size_t width = features.size() / parts;
    for (std::size_t part = 0; part < parts; ++part) {
      const std::span<float> values = features.subspan(part * width, width);
      Moments own;
      if (channels_.empty()) own.add(values);
      rescale(values, channels_.empty() ? own.scale() : channels_[part]);
    }
    std::transform(features.begin(), features.end(), to + k * count,
                   [](float value) { return f16(value); });
  });
  return y;
}

}  // namespace sotto::images
