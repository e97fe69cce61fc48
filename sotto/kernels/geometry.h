// How a window moves over an image: shared by convolution, pooling and unfolding.
#pragma once

#include <cstdint>

namespace sotto {

// One to three spatial axes are always written as three (d, h, w); absent ones have kernel 1.
// `before` and `after` are the zero padding on each side.
struct Window {
  std::int64_t kernel[3] = {1, 1, 1};
  std::int64_t stride[3] = {1, 1, 1};
  std::int64_t before[3] = {0, 0, 0};
  std::int64_t after[3] = {0, 0, 0};
  std::int64_t dilation[3] = {1, 1, 1};
  std::int64_t groups = 1;  // convolution only

  // floor((in + before + after - dilation (kernel - 1) - 1) / stride) + 1, per axis
  std::int64_t output_size(int axis, std::int64_t in) const {
    const std::int64_t span = dilation[axis] * (kernel[axis] - 1) + 1;
    const std::int64_t room = in + before[axis] + after[axis] - span;
    return room < 0 ? 0 : room / stride[axis] + 1;
  }
  std::int64_t positions() const { return kernel[0] * kernel[1] * kernel[2]; }
  bool operator==(const Window&) const = default;
};

}  // namespace sotto
