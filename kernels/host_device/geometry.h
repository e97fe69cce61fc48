// The geometry of a window that moves over an image, for convolution, pooling and unfolding. Device
// code can include this header.
#pragma once

#include <cstdint>

#include "core/view.h"

namespace sotto {

// There are always three spatial axes (d, h, w); an absent one has kernel size 1. `before` and
// `after` are the zero padding on each side.
struct Window {
  std::int64_t kernel[3] = {1, 1, 1};    // sizes
  std::int64_t stride[3] = {1, 1, 1};    // between windows
  std::int64_t before[3] = {0, 0, 0};    // padding in front
  std::int64_t after[3] = {0, 0, 0};     // padding behind
  std::int64_t dilation[3] = {1, 1, 1};  // between a window's elements
  std::int64_t groups = 1;               // convolution only

  // floor((in + before + after - dilation (kernel - 1) - 1) / stride) + 1, per axis
  HD std::int64_t output_size(int axis, std::int64_t in) const {
    const std::int64_t span = dilation[axis] * (kernel[axis] - 1) + 1;
    const std::int64_t room = in + before[axis] + after[axis] - span;
    return room < 0 ? 0 : room / stride[axis] + 1;
  }
  // The number of elements of a window, in one channel.
  HD std::int64_t positions() const { return kernel[0] * kernel[1] * kernel[2]; }
  // The largest number of windows that contain one pixel.
  HD std::int64_t overlap() const {
    std::int64_t windows = 1;
    for (int axis = 0; axis < 3; ++axis)
      windows *= (kernel[axis] + stride[axis] - 1) / stride[axis];
    return windows;
  }
  // True if Winograd tiles of 4 x 4 results apply: a 3 x 3 kernel with stride 1.
  HD bool suits_tiles() const {
    bool square = groups == 1 && kernel[0] == 1 && before[0] == 0 && after[0] == 0;
    for (int axis = 1; axis < 3; ++axis) {
      square = square && kernel[axis] == 3 && stride[axis] == 1 && dilation[axis] == 1 &&
               before[axis] <= 1 && after[axis] <= 1;
    }
    return square;
  }
  bool operator==(const Window&) const = default;
};

// The sizes of a convolution or pooling: x [samples, channels, in], y [samples, outputs, out].
struct Geometry {
  Geometry(const View& x, const View& y, const Window& window)
      : window(window), samples(x.size[0]), channels(x.size[1]), outputs(y.size[1]) {
    for (int axis = 0; axis < 3; ++axis) {
      in[axis] = x.size[axis + 2];
      out[axis] = y.size[axis + 2];
    }
  }

  Window window;          // of the convolution
  std::int64_t samples;   // n
  std::int64_t channels;  // c
  std::int64_t outputs;   // o, or c of a pooling
  std::int64_t in[3];     // d h w of x
  std::int64_t out[3];    // d h w of y

  // Elements of x, in one channel of a sample.
  HD std::int64_t pixels() const { return in[0] * in[1] * in[2]; }
  // Elements of y, in one channel of a sample.
  HD std::int64_t positions() const { return out[0] * out[1] * out[2]; }
  // Channels of x in a group.
  HD std::int64_t group_channels() const { return channels / window.groups; }
  // Channels of y in a group.
  HD std::int64_t group_outputs() const { return outputs / window.groups; }
  // The number of inputs under a window, in one group.
  HD std::int64_t taps() const { return window.positions() * group_channels(); }
};

// A view of equal sizes without gaps, row-major or with axis 1 last.
inline View in_order(View v, bool channels_last) {
  std::int64_t stride = 1;
  const auto take = [&](int axis) {
    v.stride[axis] = stride;
    stride *= v.size[axis];
  };
  if (channels_last) take(1);
  for (int axis = v.rank - 1; axis >= 0; --axis) {
    if (axis != 1 || !channels_last) take(axis);
  }
  return v;
}

// True if [n, c, d, h, w] is stored without gaps in the order n d h w c.
inline bool is_channels_last(const View& images) {
  std::int64_t expected = 1;
  for (const int axis : {1, 4, 3, 2, 0}) {
    if (images.size[axis] != 1 && images.stride[axis] != expected) return false;
    expected *= images.size[axis];
  }
  return true;
}

}  // namespace sotto
