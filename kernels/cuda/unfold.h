// The patches of images, and their transpose.
#pragma once

#include "kernels/cuda/copy_fill.h"
#include "kernels/cuda/cudnn/cudnn_dispatch.h"
#include "kernels/host_device/reciprocal.h"
#include "kernels/host_device/windows.h"

namespace sotto {

// patches[row, (channel, tap)] = the pixel under the tap at the row's position, zero in the
// padding. The rows are those of all samples' positions from row `first` on, which is of the first
// sample. Positions, and the patches of a launch, are fewer than Reciprocal::limit.
template <class Bits>
struct Unfold {
  Geometry g;
  Reciprocal columns, positions, taps;
  Reciprocal out[2], kernel[2];  // of the last two axes
  View x;
  Bits* patches;
  std::uint32_t first;

  Unfold(const Geometry& g, const View& x, Bits* patches, std::int64_t first)
      : g(g),
        columns(g.channels * g.window.positions()),
        positions(g.positions()),
        taps(g.window.positions()),
        out{Reciprocal(g.out[1]), Reciprocal(g.out[2])},
        kernel{Reciprocal(g.window.kernel[1]), Reciprocal(g.window.kernel[2])},
        x(x),
        patches(patches),
        first(static_cast<std::uint32_t>(first)) {}

  HD void operator()(std::int64_t index) const {
    const auto [row, column] = columns(static_cast<std::uint32_t>(index));
    const auto [sample, position] = positions(row + first);
    const auto [channel, tap] = taps(column);
    const std::int64_t from = pixel(sample, coordinates(position, out), tap);
    patches[index] = from < 0 ? Bits{0} : x.as<const Bits>()[from + channel * x.stride[1]];
  }
  // The offset of the pixel under a tap, in the first channel; -1 in the padding.
  HD std::int64_t pixel(std::uint32_t sample, const Coord3& position, std::uint32_t tap) const {
    const Window& w = g.window;
    const Coord3 k = coordinates(tap, kernel);
    std::int64_t from = sample * x.stride[0];
    bool inside = true;
    for (int axis = 0; axis < 3; ++axis) {
      const std::int64_t at =
          position.at[axis] * w.stride[axis] - w.before[axis] + k.at[axis] * w.dilation[axis];
      inside = inside && at >= 0 && at < g.in[axis];
      from += at * x.stride[axis + 2];
    }
    return inside ? from : -1;
  }
  HD static Coord3 coordinates(std::uint32_t index, const Reciprocal* sizes) {
    const auto [rest, w] = sizes[1](index);
    const auto [d, h] = sizes[0](rest);
    return {{d, h, w}};
  }
};

// Unfold for images with channels last and windows of `count` taps: a thread has a pack of channels
// under all of them, which is as many packs of a row of patches.
template <class Bits, int count>
struct UnfoldChannels {
  static constexpr int lanes = pack_bytes / sizeof(Bits);
  Unfold<Bits> one;
  Reciprocal packs;  // of a pixel's channels

  HD void operator()(std::int64_t index) const {
    using Values = Pack<Bits, lanes>;
    const auto [row, pack] = packs(static_cast<std::uint32_t>(index));
    const auto [sample, position] = one.positions(row + one.first);
    const Coord3 at = one.coordinates(position, one.out);
    const Bits* const x = one.x.template as<const Bits>() + std::int64_t{pack} * lanes;
    Values read[count];
    for (int tap = 0; tap < count; ++tap) {
      const std::int64_t from = one.pixel(sample, at, tap);
      read[tap] = from < 0 ? Values{} : *reinterpret_cast<const Values*>(x + from);
    }
    for (int k = 0; k < count; ++k) {
      Values columns;
      for (int lane = 0; lane < lanes; ++lane) {
        const int column = k * lanes + lane;
        columns.value[lane] = read[column % count].value[column / count];
      }
      *reinterpret_cast<Values*>(one.patches + (index * count + k) * lanes) = columns;
    }
  }
};

// True if UnfoldChannels applies with packs of `lanes` channels.
inline bool unfolds_channels(const Geometry& g, const View& x, const void* patches, int lanes) {
  bool fits = x.stride[1] == 1 && g.channels % lanes == 0 && aligned(x) &&
              reinterpret_cast<std::uintptr_t>(patches) % pack_bytes == 0;
  for (const int axis : {0, 2, 3, 4}) fits = fits && x.stride[axis] % lanes == 0;
  return fits;
}

template <class Bits, class Exec>
void unfold_rows(const Exec& exec, std::int64_t rows, const Unfold<Bits>& unfold) {
  const Geometry& g = unfold.g;
  if constexpr (sizeof(Bits) > 1) {
    constexpr int lanes = pack_bytes / sizeof(Bits);
    const auto run = [&](auto taps) {
      const std::int64_t packs = g.channels / lanes;
      exec.for_each(rows * packs, UnfoldChannels<Bits, taps>{unfold, Reciprocal(packs)});
    };
    const std::int64_t taps = g.window.positions();
    if (unfolds_channels(g, unfold.x, unfold.patches, lanes)) {
      if (taps == 1) return run(std::integral_constant<int, 1>{});
      if (taps == 9) return run(std::integral_constant<int, 9>{});
    }
  }
  exec.for_each(rows * g.channels * g.window.positions(), unfold);
}

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

// `limit` bounds the elements of a launch and the rows that it counts; a filter has fewer elements.
template <class Exec>
void unfold_into(const Exec& exec, const Geometry& g, const View& x, void* patches,
                 std::int64_t limit = Reciprocal::limit) {
  const std::int64_t columns = g.channels * g.window.positions(), rows = g.samples * g.positions();
  if (rows * columns == 0) return;
  const std::int64_t step =
      std::max<std::int64_t>(1, std::min((limit - 1) / columns, limit - g.positions()));
  dispatch_bits(x.dtype, [&]<class Bits>(std::type_identity<Bits>) {
    for (std::int64_t row = 0; row < rows; row += step) {
      const std::int64_t sample = row / g.positions();
      unfold_rows(exec, std::min(step, rows - row),
                  Unfold<Bits>(g, samples_of(x, sample, g.samples - sample),
                               static_cast<Bits*>(patches) + row * columns, row % g.positions()));
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
