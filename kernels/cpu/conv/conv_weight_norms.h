// Norms of a convolution's weight gradient of one sample, which is never written: a tile of it
// stays in registers while the positions go by, its squares are added up, and it is forgotten.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/conv/images.h"

namespace sotto {

// Of images, channels-last, in the type of the arithmetic.
template <class T>
class WeightNorms {
 public:
  // Whether tiles fill the registers: convolutions in one group, of windows that lie side by side.
  static bool suits(const Geometry& g);

  explicit WeightNorms(const Geometry& g);
  // |dw|^2 of dy [positions, outputs] and x [pixels, channels], with the relative rounding of
  // squared_norm(); negative where squares may have left float's range.
  double of(const T* dy, const T* x);

 private:
  void add_tiles(const T* dy, const T* x, double* sums) const;

  Geometry g_;
  std::int64_t padded_[3];             // the image with its padding
  std::vector<std::int64_t> offsets_;  // of a position's window in that, in elements
  Values<T> image_;                    // with padding, and room for vectors behind it
};

}  // namespace sotto
