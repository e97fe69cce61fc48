// Shapes of convolutions for tests.
#pragma once

#include "tests/support/kernel_cases.h"

namespace sotto {

struct ConvCase {
  Window window;
  Shape x, w, y;
};

// The shape of one weight gradient per sample.
inline Shape rows_shape(const ConvCase& c) {
  Shape shape = c.w;
  shape.insert(0, c.x[0]);
  return shape;
}

inline const Shape channels_last_order{0, 2, 3, 4, 1};

// A case with up to three spatial axes, groups, dilation, and padding that differs at the two ends.
inline ConvCase random_case(Random& random, std::int64_t samples) {
  ConvCase c;
  const std::int64_t axes = between(random, 1, 3);
  const std::int64_t groups = between(random, 1, 3);
  c.window.groups = groups;
  c.x = {samples, groups * between(random, 1, 9)};
  c.w = {groups * between(random, 1, 9), c.x[1] / groups};
  c.y = {samples, c.w[0]};
  for (int axis = 0; axis < 3; ++axis) {
    std::int64_t in = 1;
    if (axis >= 3 - axes) {
      c.window.kernel[axis] = between(random, 1, 4);
      c.window.stride[axis] = between(random, 1, 3);
      c.window.dilation[axis] = between(random, 1, 2);
      c.window.before[axis] = between(random, 0, 3);
      c.window.after[axis] = between(random, -1, 3);  // negative padding, as a gradient may have
      in = between(random, c.window.dilation[axis] * (c.window.kernel[axis] - 1) + 2, 9);
    }
    c.x.push_back(in);
    c.w.push_back(c.window.kernel[axis]);
    c.y.push_back(c.window.output_size(axis, in));
  }
  return c;
}

// Square images, with the numbers of input and output channels.
inline ConvCase image_case(std::int64_t samples, const Shape& channels, std::int64_t side,
                           Window window) {
  const std::int64_t out = window.output_size(2, side);
  return {window,
          {samples, channels[0], 1, side, side},
          {channels[1], channels[0] / window.groups, 1, window.kernel[1], window.kernel[2]},
          {samples, channels[1], 1, out, out}};
}

// Square windows with stride `stride` over two axes.
inline Window square(std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  Window w;
  for (int axis = 1; axis < 3; ++axis) {
    w.kernel[axis] = kernel;
    w.stride[axis] = stride;
    w.before[axis] = w.after[axis] = padding;
  }
  return w;
}

}  // namespace sotto
