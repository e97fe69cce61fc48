// The patches of images, and their transpose.
#pragma once

#include "kernels/cuda/copy_fill.h"
#include "kernels/cuda/cudnn/cudnn_dispatch.h"
#include "kernels/host_device/reciprocal.h"
#include "kernels/host_device/windows.h"

namespace sotto {

// patches[n, position, (channel, tap)] = the pixel under the tap at the position, zero in the
// padding. There are fewer than Reciprocal::limit of them.
template <class Bits>
struct Unfold {
  Geometry g;
  Reciprocal columns, positions, taps;
  Reciprocal out[2], kernel[2];  // of the last two axes
  View x;
  Bits* patches;

  Unfold(const Geometry& g, const View& x, Bits* patches)
      : g(g),
        columns(g.channels * g.window.positions()),
        positions(g.positions()),
        taps(g.window.positions()),
        out{Reciprocal(g.out[1]), Reciprocal(g.out[2])},
        kernel{Reciprocal(g.window.kernel[1]), Reciprocal(g.window.kernel[2])},
        x(x),
        patches(patches) {}

  HD void operator()(std::int64_t index) const {
    const Window& w = g.window;
    const auto [row, column] = columns(static_cast<std::uint32_t>(index));
    const auto [sample, at_position] = positions(row);
    const auto [channel, tap] = taps(column);
    const Coord3 position = coordinates(at_position, out), k = coordinates(tap, kernel);
    std::int64_t from = sample * x.stride[0] + channel * x.stride[1];
    bool inside = true;
    for (int axis = 0; axis < 3; ++axis) {
      const std::int64_t at =
          position.at[axis] * w.stride[axis] - w.before[axis] + k.at[axis] * w.dilation[axis];
      inside = inside && at >= 0 && at < g.in[axis];
      from += at * x.stride[axis + 2];
    }
    patches[index] = inside ? x.as<const Bits>()[from] : Bits{0};
  }

 private:
  HD static Coord3 coordinates(std::uint32_t index, const Reciprocal* sizes) {
    const auto [rest, w] = sizes[1](index);
    const auto [d, h] = sizes[0](rest);
    return {{d, h, w}};
  }
};

// The transpose of Unfold: every pixel of x gathers from the patches that contain it.
template <class T>
struct Fold {
  Geometry g;
  const T* patches;
  View x;
  HD void operator()(std::int64_t index) const {
    const std::int64_t taps = g.window.positions(), pixels = g.pixels();
    const std::int64_t c = index % g.channels, n = index / g.channels / pixels;
    const Coord3 pixel = coord3(index / g.channels % pixels, g.in);
    acc_t<T> sum = 0;
    for_each_position(g, pixel, [&](std::int64_t tap, const Coord3& p) {
      const std::int64_t position = (p.at[0] * g.out[1] + p.at[1]) * g.out[2] + p.at[2];
      const std::int64_t row = n * g.positions() + position;
      sum += acc_t<T>(patches[(row * g.channels + c) * taps + tap]);
    });
    std::int64_t to = n * x.stride[0] + c * x.stride[1];
    for (int axis = 0; axis < 3; ++axis) to += pixel.at[axis] * x.stride[axis + 2];
    x.as<T>()[to] = T(sum);
  }
};

inline Geometry of_samples(Geometry g, std::int64_t samples) {
  g.samples = samples;
  return g;
}

template <class Exec>
void unfold_into(const Exec& exec, const Geometry& g, const View& x, void* patches) {
  const std::int64_t each = g.positions() * g.channels * g.window.positions();
  if (g.samples * each == 0) return;
  const std::int64_t step = std::max<std::int64_t>(1, (Reciprocal::limit - 1) / each);
  dispatch_bits(x.dtype, [&]<class Bits>(std::type_identity<Bits>) {
    for (std::int64_t n = 0; n < g.samples; n += step) {
      const std::int64_t count = std::min(step, g.samples - n);
      exec.for_each(count * each, Unfold<Bits>(of_samples(g, count), samples_of(x, n, count),
                                               static_cast<Bits*>(patches) + n * each));
    }
  });
}

// The patches of images: written to `room`, or the images themselves under a 1 x 1 window.
template <class Exec>
char* patches_of(const Exec& exec, const Geometry& g, const View& x, char* room) {
  if (is_product(g.window) && is_channels_last(x)) return x.as<char>();
  unfold_into(exec, g, x, room);
  return room;
}

}  // namespace sotto
