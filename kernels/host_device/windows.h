// Enumerates the pixels under a window and the windows over a pixel. Device code can include this
// header.
#pragma once

#include <cstdint>

#include "kernels/host_device/geometry.h"

namespace sotto {

// The coordinates (d, h, w) of a pixel, a position or a tap.
struct Coord3 {
  std::int64_t at[3];
};

HD inline Coord3 coord3(std::int64_t index, const std::int64_t* size) {
  return {{index / (size[1] * size[2]), index / size[2] % size[1], index % size[2]}};
}

// Calls f(tap, pixel) for the taps of the window at `position` that are inside the input.
template <class F>
HD void for_each_pixel(const Geometry& g, const Coord3& position, F&& f) {
  const Window& w = g.window;
  for (std::int64_t tap = 0; tap < w.positions(); ++tap) {
    const Coord3 k = coord3(tap, w.kernel);
    Coord3 pixel;
    bool inside = true;
    for (int axis = 0; axis < 3; ++axis) {
      pixel.at[axis] =
          position.at[axis] * w.stride[axis] - w.before[axis] + k.at[axis] * w.dilation[axis];
      inside = inside && pixel.at[axis] >= 0 && pixel.at[axis] < g.in[axis];
    }
    if (inside) f(tap, pixel);
  }
}

// Calls f(tap, position) for each window that contains `pixel`, at tap `tap`.
template <class F>
HD void for_each_position(const Geometry& g, const Coord3& pixel, F&& f) {
  const Window& w = g.window;
  for (std::int64_t tap = 0; tap < w.positions(); ++tap) {
    const Coord3 k = coord3(tap, w.kernel);
    Coord3 position;
    bool inside = true;
    for (int axis = 0; axis < 3; ++axis) {
      const std::int64_t from = pixel.at[axis] + w.before[axis] - k.at[axis] * w.dilation[axis];
      position.at[axis] = from / w.stride[axis];
      inside = inside && from >= 0 && from % w.stride[axis] == 0 && position.at[axis] < g.out[axis];
    }
    if (inside) f(tap, position);
  }
}

// 1 / the number of elements that a window's average is over. With `count_padding`, elements up to
// `before` past either end count. A larger `after` does not count: it only makes room for a last
// window when sizes are rounded up.
HD inline double weight(const Geometry& g, const Coord3& position, bool count_padding) {
  const Window& w = g.window;
  double count = 1;
  for (int axis = 0; axis < 3; ++axis) {
    const std::int64_t margin = count_padding ? w.before[axis] : 0;
    const std::int64_t start = position.at[axis] * w.stride[axis] - w.before[axis];
    std::int64_t inside = 0;
    for (std::int64_t k = 0; k < w.kernel[axis]; ++k) {
      const std::int64_t at = start + k * w.dilation[axis];
      inside += at >= -margin && at < g.in[axis] + margin;
    }
    count *= static_cast<double>(inside);
  }
  return count == 0 ? 0 : 1 / count;
}

}  // namespace sotto
