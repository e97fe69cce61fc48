// The features of the model `scattering`, which are not learned.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "samples/images/picture_data.h"

namespace sotto::images {

struct FeatureOptions {
  // The groups of channels, of one picture, that are normalised to mean 0 and variance 1 (Wu and He
  // 2018). 0: each channel is shifted and scaled by constants instead, so that over pictures of
  // overlapping discs (shapes.h) it has mean 0 and variance 1. The discs' contrast was chosen by
  // looking at CIFAR-10's training pictures: for those, but for no other data, the constants are
  // not quite independent of the data.
  std::int64_t groups = 0;
  // The transforms of a picture and its mirror image are averaged. The average has a mirror
  // symmetry itself, and its left half is kept.
  bool mirror = false;
};

// The shape of a picture's features: channels, rows, columns.
Shape feature_shape(const PictureShape& shape, const FeatureOptions& options);

// Makes the features of pictures of one shape: the square roots of the scattering transform
// (nn/data/images/scattering.h), normalised.
class Features {
 public:
  Features(const PictureShape& shape, const FeatureOptions& options);
  // Pictures [n, c, size, size] -> f16 [n, channels, rows, columns]. A picture's features depend on
  // no other picture.
  Tensor operator()(const Tensor& pictures) const;

 private:
  // Shifts by the mean and scales by the factor.
  struct Scale {
    double mean = 0, factor = 1;
  };
  class Moments;
  void each_picture(
      const Tensor& pictures,
      const std::function<void(std::int64_t k, std::span<float> features)>& use) const;
  std::vector<Scale> scales_of(const Tensor& pictures) const;
  static void rescale(std::span<float> features, const Scale& scale);

  PictureShape shape_;
  FeatureOptions options_;
  std::vector<Scale> channels_;  // empty: groups of one picture are normalised
};

}  // namespace sotto::images
