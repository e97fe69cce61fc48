// Norms of a convolution's per-sample weight gradients without storing these: a tile of a gradient
// stays in registers while it is summed over the positions, then its squares are added up.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/conv/conv_images.h"

namespace sotto {

// Norms for channels-last images in the accumulation type.
template <class T>
class WeightNorms {
 public:
  // True if tiles fill the registers: a convolution with one group and undilated window rows.
  static bool suits(const Geometry& g);

  explicit WeightNorms(const Geometry& g);
  // dw|^2 for dy [positions, outputs] and x [pixels, channels], with the relative rounding error of
  // squared_norm(). Negative if squares may have exceeded the range of float.
  double of(const T* dy, const T* x);

 private:
  Geometry g_;
  std::vector<std::int64_t> offsets_;  // of a position's window rows in the padded image
  Values<T> image_;                    // padded, with room for vectors behind it
};

}  // namespace sotto
