// Parts of a convolution's positions, for sums over long chains of them.
#pragma once

#include <algorithm>

#include "kernels/host_device/gemm_blocking.h"
#include "kernels/host_device/geometry.h"

namespace sotto {

// first .. last - 1 along an axis.
inline View slice(View v, int axis, std::int64_t first, std::int64_t last) {
  v.data = v.as<char>() + first * v.stride[axis] * static_cast<std::int64_t>(size_of(v.dtype));
  v.size[axis] = last - first;
  return v;
}

// Views of the operands of a weight gradient, and the window over them.
struct ConvPart {
  View dy, x;
  Window window;

  Geometry geometry() const { return {x, dy, window}; }
  // The positions first .. last - 1 along a spatial axis, and the pixels that their windows see.
  ConvPart between(int axis, std::int64_t first, std::int64_t last) const {
    const Window& w = window;
    const std::int64_t begin = first * w.stride[axis] - w.before[axis],
                       end = (last - 1) * w.stride[axis] + (w.kernel[axis] - 1) * w.dilation[axis] +
                             1 - w.before[axis],
                       from = std::clamp<std::int64_t>(begin, 0, x.size[axis + 2]),
                       to = std::clamp<std::int64_t>(end, from, x.size[axis + 2]);
    ConvPart y{slice(dy, axis + 2, first, last), slice(x, axis + 2, from, to), w};
    y.window.before[axis] = from - begin;
    y.window.after[axis] = end - to;
    return y;
  }
};

// Calls f(part) for parts of at most conv_chain positions: a longer image is halved along its first
// axis, so that a part of channels-last images lies without gaps. Parts whose windows see padding
// alone are left out.
template <class F>
void for_each_part(const ConvPart& all, const F& f) {
  const Geometry g = all.geometry();
  if (all.x.numel() == 0 && g.samples > 0) return;
  if (g.positions() <= conv_chain) return f(all);
  const int axis = g.out[0] > 1 ? 0 : (g.out[1] > 1 ? 1 : 2);
  const std::int64_t half = g.out[axis] / 2;
  for_each_part(all.between(axis, 0, half), f);
  for_each_part(all.between(axis, half, g.out[axis]), f);
}

// True for images of so few positions that their weight gradients are products of patches: oneDNN
// takes up to twice the time (docs/appendix/experiments.md).
inline bool has_few_positions(const Geometry& g) {
  constexpr std::int64_t most = 64;
  return g.window.groups == 1 && g.samples > 0 && g.positions() > 0 && g.positions() <= most &&
         g.taps() > 0;
}

}  // namespace sotto
