// Convolution by im2col: patches of several samples form a block that stays in the cache and is
// multiplied by the weights; each row of the product is a position.
#include <algorithm>
#include <vector>

#include "core/threads/parallel.h"
#include "kernels/cpu/conv/conv_matrices.h"
#include "kernels/cpu/conv/depthwise.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/grain.h"

namespace sotto {
namespace {

// Values in a block of patches: 256 KiB of floats, a part of the second-level cache.
constexpr std::int64_t patch_values = 1 << 16;
// A product has at least this many rows, where a block has so many positions.
constexpr std::int64_t min_rows = 128;
// Samples are joined until they have this many positions.
constexpr std::int64_t block_rows = 256;

// A vector [o] as weights [o, 1, 1, 1, 1].
View as_weights(const View& v) {
  return {v.data, v.dtype, 5, {v.size[0], 1, 1, 1, 1}, {v.stride[0], 1, 1, 1, 1}};
}

// The given rows of sample n of [n, positions, c kd kh kw], as [rows, c, kd, kh, kw].
View patches_view(const Geometry& g, const View& patches, std::int64_t n, Range rows) {
  const std::int64_t* kernel = g.window.kernel;
  const std::int64_t first = n * patches.stride[0] + rows.first * patches.stride[1];
  const std::int64_t offset = first * static_cast<std::int64_t>(size_of(patches.dtype));
  return {patches.as<char>() + offset,
          patches.dtype,
          5,
          {rows.count(), g.channels, kernel[0], kernel[1], kernel[2]},
          {patches.stride[1], g.window.positions(), kernel[1] * kernel[2], kernel[2], 1}};
}

// The number of samples in a block; each thread gets one, where there are enough samples.
std::int64_t block_samples(const Geometry& g) {
  const std::int64_t fitting = block_rows / std::max<std::int64_t>(1, g.positions()),
                     share = (g.samples + thread_count() - 1) / thread_count();
  return std::max<std::int64_t>(1, std::min(fitting, share));
}

// Calls f(block) for consecutive blocks of samples.
template <class F>
void for_each_block(const Geometry& g, Range samples, F&& f) {
  const std::int64_t step = block_samples(g);
  for (std::int64_t n = samples.first; n < samples.last; n += step) {
    f(Range{n, std::min(samples.last, n + step)});
  }
}

// The number of patches, out of those of `samples` samples, that stay in the cache.
std::int64_t part_rows(const Geometry& g, std::int64_t samples) {
  const std::int64_t fitting = patch_values / std::max<std::int64_t>(1, g.taps());
  return std::min(samples * g.positions(), std::max(min_rows, fitting));
}

// Calls f(rows) for consecutive parts of the positions of `samples` samples.
template <class F>
void for_each_part(const Geometry& g, std::int64_t samples, F&& f) {
  const std::int64_t rows = samples * g.positions(), step = part_rows(g, samples);
  for (std::int64_t row = 0; row < rows; row += step) f(Range{row, std::min(rows, row + step)});
}

// The weights [outputs, taps] of each group, or transposed, as right factors.
template <class T>
std::vector<PackedMatrix> packed_groups(const Geometry& g, T* weights, bool transposed) {
  std::vector<PackedMatrix> factors;
  for (std::int64_t group = 0; group < g.window.groups; ++group) {
    const Matrix w = weights_of(g, group, weights);
    factors.emplace_back(transposed ? w.transposed() : w, dtype_of<T>());
  }
  return factors;
}

template <class T>
void convolve(const View& x, const View& w, const View& bias, const Geometry& g, const View& y) {
  const Values<T> weights(w.numel()), offsets(g.outputs);
  pack(w, weights.data());
  const std::vector<PackedMatrix> factors = packed_groups(g, weights.data(), true);
  if (bias.data) pack(as_weights(bias), offsets.data());
  const auto block = [&](Range samples) {
    Images<T> in(x, samples), out(y, samples);
    in.load();
    const Values<T> patches(part_rows(g, samples.count()) * g.taps());
    for_each_part(g, samples.count(), [&](Range rows) {
      for (std::int64_t row = rows.first; bias.data && row < rows.last; ++row) {
        std::copy_n(offsets.data(), g.outputs, out.data() + row * g.outputs);
      }
      for (std::int64_t group = 0; group < g.window.groups; ++group) {
        gather_patches(in.data(), g, rows, group, patches.data());
        product(row_major(patches.data(), rows.count(), g.taps(), g.taps()),
                factors[static_cast<std::size_t>(group)], bias.data != nullptr,
                outputs_of(g, group, rows, out.data()));
      }
    });
    out.store();
  };
  parallel_for(g.samples, std::max(block_samples(g), product_grain(sample_work(g))),
               [&](std::int64_t begin, std::int64_t end) {
                 for_each_block(g, {begin, end}, block);
               });
}

template <class T>
void convolve_data(const View& dy, const View& w, const Geometry& g, const View& dx) {
  const Values<T> weights(w.numel());
  pack(w, weights.data());
  const std::vector<PackedMatrix> factors = packed_groups(g, weights.data(), false);
  const auto block = [&](Range samples) {
    Images<T> in(dy, samples), out(dx, samples);
    in.load();
    std::fill_n(out.data(), samples.count() * g.pixels() * g.channels, T{0});
    const Values<T> patches(part_rows(g, samples.count()) * g.taps());
    for_each_part(g, samples.count(), [&](Range rows) {
      for (std::int64_t group = 0; group < g.window.groups; ++group) {
        product(outputs_of(g, group, rows, in.data()), factors[static_cast<std::size_t>(group)],
                false, row_major(patches.data(), rows.count(), g.taps(), g.taps()));
        scatter_patches(patches.data(), g, rows, group, out.data());
      }
    });
    out.store();
  };
  parallel_for(g.samples, std::max(block_samples(g), product_grain(sample_work(g))),
               [&](std::int64_t begin, std::int64_t end) {
                 for_each_block(g, {begin, end}, block);
               });
}

// Weights [c, taps] in the order [taps, c].
template <class T>
void by_taps(const T* packed, const Geometry& g, T* y) {
  const std::int64_t taps = g.taps();
  for (std::int64_t c = 0; c < g.channels; ++c) {
    for (std::int64_t k = 0; k < taps; ++k) y[k * g.channels + c] = packed[c * taps + k];
  }
}

// Depthwise passes: calls f(passes, weights, from, to) for each sample of x and y, with the weights
// [taps, c].
template <class T, class F>
void for_each_depthwise(const View& x, const View& w, const Geometry& g, const View& y, F&& f) {
  const Values<T> packed(w.numel()), weights(w.numel());
  pack(w, packed.data());
  by_taps(packed.data(), g, weights.data());
  const Depthwise<T> passes(g);
  parallel_for(g.samples, product_grain(sample_work(g)), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      Images<T> from(x, {n, n + 1}), to(y, {n, n + 1});
      from.load();
      f(passes, weights.data(), from.data(), to.data());
      to.store();
    }
  });
}

template <class T>
void convolve_depthwise(const View& x, const View& w, const View& bias, const Geometry& g,
                        const View& y) {
  const Values<T> offsets(g.outputs);
  if (bias.data) pack(as_weights(bias), offsets.data());
  for_each_depthwise<T>(x, w, g, y,
                        [&](const auto& passes, const T* weights, const T* from, T* to) {
                          passes.forward(from, weights, bias.data ? offsets.data() : nullptr, to);
                        });
}

}  // namespace

void CpuBackend::conv(View x, View w, View bias, const Window& window, View y) {
  const Geometry g(x, y, window);
  with_arithmetic(x.dtype, [&]<class T>(std::type_identity<T>) {
    is_depthwise(g) ? convolve_depthwise<T>(x, w, bias, g, y) : convolve<T>(x, w, bias, g, y);
  });
}

void CpuBackend::conv_data(View dy, View w, const Window& window, View dx) {
  const Geometry g(dx, dy, window);
  with_arithmetic(dy.dtype, [&]<class T>(std::type_identity<T>) {
    if (!is_depthwise(g)) return convolve_data<T>(dy, w, g, dx);
    for_each_depthwise<T>(dy, w, g, dx,
                          [](const auto& passes, const T* weights, const T* from, T* to) {
                            passes.data(from, weights, to);
                          });
  });
}

void CpuBackend::unfold(View x, const Window& window, View patches) {
  Geometry g(x, x, window);
  for (int axis = 0; axis < 3; ++axis) g.out[axis] = window.output_size(axis, g.in[axis]);
  g.window.groups = 1;
  const std::int64_t size = window.positions() * g.channels;
  with_arithmetic(x.dtype, [&]<class T>(std::type_identity<T>) {
    parallel_for(g.samples, elementwise_grain / (g.positions() * size + 1) + 1,
                 [&](std::int64_t begin, std::int64_t end) {
                   const Values<T> scratch(part_rows(g, 1) * size);
                   for (std::int64_t n = begin; n < end; ++n) {
                     Images<T> in(x, {n, n + 1});
                     in.load();
                     for_each_part(g, 1, [&](Range rows) {
                       gather_patches(in.data(), g, rows, 0, scratch.data());
                       unpack(scratch.data(), false, patches_view(g, patches, n, rows));
                     });
                   }
                 });
  });
}

}  // namespace sotto
