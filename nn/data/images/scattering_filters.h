// The fixed filters of the scattering transform with J = 2 scales and L = 8 angles, as Kymatio 0.3
// makes them (Andreux et al. 2020, "Kymatio: scattering transforms in Python").
#pragma once

#include <cstdint>
#include <vector>

namespace sotto {

struct ScatteringFilters {
  static constexpr int scales = 2;
  static constexpr int angles = 8;
  static constexpr std::int64_t padding = 4;  // reflected pixels at each side

  // The filters for pictures of this size.
  ScatteringFilters(std::int64_t height, std::int64_t width);

  // A smoothing by a Gaussian and a subsampling to one value for 4 x 4 pixels of the picture, along
  // one axis: y[a] = sum_i matrix[a, i] x[i].
  struct LowPass {
    std::int64_t outputs, inputs;
    std::vector<float> matrix;
  };

  std::int64_t height, width;  // with the padding
  // [height, width] for each scale and, within, each angle: the Morlet wavelet's transform, which
  // is real, divided by height * width.
  std::vector<std::vector<float>> wavelets;
  // For signals at full resolution, and at half of it.
  LowPass rows[scales], columns[scales];
};

}  // namespace sotto
