// Convolution by im2col: patches of several samples form a block that stays in the cache and is
// multiplied by the weights; each row of the product is a position.
#include <algorithm>
#include <optional>

#include "core/threads/parallel.h"
#include "kernels/cpu/conv/conv_gram.h"
#include "kernels/cpu/conv/conv_images.h"
#include "kernels/cpu/conv/conv_weight_norms.h"
#include "kernels/cpu/conv/depthwise.h"
#include "kernels/cpu/conv/pair_conv.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/gemm/gemm_kernel.h"
#include "kernels/cpu/grain.h"

namespace sotto {
namespace {

// Values in a block of patches: 256 KiB of floats, a part of the second-level cache.
constexpr std::int64_t patch_values = 1 << 16;
// A product with fewer rows is not worth the preparation of the weights; a sum over positions is
// rounded once for each of these products.
constexpr std::int64_t min_rows = 128;
// Samples are joined until they have this many positions.
constexpr std::int64_t block_rows = 256;

// Calls f(std::type_identity<T>{}) with the accumulator type of a storage dtype.
template <class F>
void with_arithmetic(Dtype dtype, F&& f) {
  if (dtype == Dtype::f64) {
    f(std::type_identity<double>{});
  } else {
    f(std::type_identity<float>{});
  }
}

template <class T>
Matrix row_major(T* data, std::int64_t rows, std::int64_t cols, std::int64_t row_stride) {
  return {data, dtype_of<T>(), rows, cols, row_stride, 1};
}

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

// Calls f(weight, packed) for each weight of [o, c, kd, kh, kw] and its packed copy, ordered [o,
// taps, c].
template <class S, class T, class F>
void for_each_weight(const View& w, T* packed, F&& f) {
  const Shape sizes(std::span(w.size + 2, 3)), strides(std::span(w.stride + 2, 3));
  for (std::int64_t o = 0; o < w.size[0]; ++o) {
    for_each_offset(sizes, strides, [&](std::int64_t tap) {
      S* first = w.as<S>() + o * w.stride[0] + tap;
      for (std::int64_t c = 0; c < w.size[1]; ++c) f(first[c * w.stride[1]], *packed++);
    });
  }
}

// packed [o, taps, c] = w
template <class T>
void pack(const View& w, T* packed) {
  dispatch_float(w.dtype, [&]<class S>(std::type_identity<S>) {
    for_each_weight<S>(w, packed, [](const S& from, T& to) { to = static_cast<acc_t<S>>(from); });
  });
}

// dw = packed, or dw += packed.
template <class T>
void unpack(T* packed, bool add, const View& dw) {
  dispatch_float(dw.dtype, [&]<class S>(std::type_identity<S>) {
    for_each_weight<S>(dw, packed, [&](S& to, const T& from) {
      const T old = add ? static_cast<T>(static_cast<acc_t<S>>(to)) : T{0};
      to = static_cast<S>(static_cast<acc_t<S>>(old + from));
    });
  });
}

// The number of samples in a block.
std::int64_t block_samples(const Geometry& g) {
  return std::max<std::int64_t>(1, block_rows / std::max<std::int64_t>(1, g.positions()));
}

// Multiply-adds of one sample in each pass.
std::int64_t sample_work(const Geometry& g) { return g.positions() * g.outputs * g.taps(); }

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

// The weights of a group, [outputs of the group, taps]; and the group's part of some rows of y.
template <class T>
Matrix weights_of(const Geometry& g, std::int64_t group, T* packed) {
  const std::int64_t part = g.group_outputs() * g.taps();
  return row_major(packed + group * part, g.group_outputs(), g.taps(), g.taps());
}
template <class T>
Matrix outputs_of(const Geometry& g, std::int64_t group, Range rows, T* y) {
  T* first = y + rows.first * g.outputs + group * g.group_outputs();
  return row_major(first, rows.count(), g.group_outputs(), g.outputs);
}

template <class T>
void convolve(const View& x, const View& w, const View& bias, const Geometry& g, const View& y) {
  const Values<T> weights(w.numel()), offsets(g.outputs);
  pack(w, weights.data());
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
                weights_of(g, group, weights.data()).transposed(), bias.data != nullptr,
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
  const auto block = [&](Range samples) {
    Images<T> in(dy, samples), out(dx, samples);
    in.load();
    std::fill_n(out.data(), samples.count() * g.pixels() * g.channels, T{0});
    const Values<T> patches(part_rows(g, samples.count()) * g.taps());
    for_each_part(g, samples.count(), [&](Range rows) {
      for (std::int64_t group = 0; group < g.window.groups; ++group) {
        product(outputs_of(g, group, rows, in.data()), weights_of(g, group, weights.data()), false,
                row_major(patches.data(), rows.count(), g.taps(), g.taps()));
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

// dw [o, taps, c] = the sum over `samples`.
template <class T>
void sum_weight(const View& dy, const View& x, const Geometry& g, Range samples, T* dw) {
  if (is_depthwise(g)) return sum_depthwise_weight(dy, x, g, samples, dw);
  std::fill_n(dw, g.outputs * g.taps(), T{0});
  for_each_block(g, samples, [&](Range block) {
    Images<T> in(x, block), grads(dy, block);
    in.load();
    grads.load();
    const Values<T> patches(part_rows(g, block.count()) * g.taps());
    for_each_part(g, block.count(), [&](Range rows) {
      for (std::int64_t group = 0; group < g.window.groups; ++group) {
        gather_patches(in.data(), g, rows, group, patches.data());
        product(outputs_of(g, group, rows, grads.data()).transposed(),
                row_major(patches.data(), rows.count(), g.taps(), g.taps()), true,
                weights_of(g, group, dw));
      }
    });
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

// Each thread computes one sum; the sums are then added in a fixed order.
void CpuBackend::conv_weight(View dy, View x, const Window& window, double beta, View dw) {
  const Geometry g(x, dy, window);
  if (PairConv::suits(g, dy, x)) return pair_conv_weight(g, dy, x, beta, dw);
  const std::int64_t size = g.outputs * g.taps();
  const std::int64_t parts = std::clamp<std::int64_t>(g.samples, 1, thread_count());
  with_arithmetic(x.dtype, [&]<class T>(std::type_identity<T>) {
    const Values<T> sums(parts * size);
    parallel_for(parts, product_grain(g.samples / parts * sample_work(g)),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t part = begin; part < end; ++part) {
                     const Range samples{g.samples * part / parts, g.samples * (part + 1) / parts};
                     sum_weight(dy, x, g, samples, sums.data() + part * size);
                   }
                 });
    for (std::int64_t i = 0; i < size; ++i) {
      for (std::int64_t part = 1; part < parts; ++part) {
        sums.data()[i] += sums.data()[part * size + i];
      }
    }
    unpack(sums.data(), beta != 0, dw);
  });
}

void CpuBackend::conv_weight_rows(View dy, View x, const Window& window, View dw, View norms) {
  const Geometry g(x, dy, window);
  if (PairConv::suits(g, dy, x)) return pair_conv_rows(g, dy, x, dw, norms);
  with_arithmetic(x.dtype, [&]<class T>(std::type_identity<T>) {
    parallel_for(g.samples, product_grain(sample_work(g)),
                 [&](std::int64_t begin, std::int64_t end) {
                   const Values<T> row(g.outputs * g.taps());
                   for (std::int64_t n = begin; n < end; ++n) {
                     sum_weight(dy, x, g, {n, n + 1}, row.data());
                     unpack(row.data(), false, row_of(dw, n));
                     if (!norms.data) continue;
                     Images<T> grads(dy, {n, n + 1}), in(x, {n, n + 1});
                     grads.load();
                     in.load();
                     const double square = squared_norm(row.data(), g.outputs * g.taps());
                     write_norms(g, square, grads.data(), in.data(), norms.as<double>() + 3 * n);
                   }
                 });
  });
}

namespace {

// The squared norm of one sample's weight gradient.
template <class T>
double weight_norm(const View& dy, const View& x, const Geometry& g, std::int64_t sample) {
  const Values<T> row(g.outputs * g.taps());
  sum_weight(dy, x, g, {sample, sample + 1}, row.data());
  return squared_norm(row.data(), g.outputs * g.taps());
}

}  // namespace

void CpuBackend::conv_weight_norms(View dy, View x, const Window& window, View y) {
  const Geometry g(x, dy, window);
  if (PairConv::suits(g, dy, x)) return pair_conv_rows(g, dy, x, {}, y);
  with_arithmetic(x.dtype, [&]<class T>(std::type_identity<T>) {
    parallel_for(g.samples, product_grain(sample_work(g)),
                 [&](std::int64_t begin, std::int64_t end) {
                   std::optional<WeightNorms<T>> tiles;
                   if (WeightNorms<T>::suits(g)) tiles.emplace(g);
                   for (std::int64_t n = begin; n < end; ++n) {
                     Images<T> grads(dy, {n, n + 1}), in(x, {n, n + 1});
                     grads.load();
                     in.load();
                     double square = tiles ? tiles->of(grads.data(), in.data()) : -1;
                     if (square < 0) square = weight_norm<T>(dy, x, g, n);
                     write_norms(g, square, grads.data(), in.data(), y.as<double>() + 3 * n);
                   }
                 });
  });
}

double exact_weight_norm(const View& dy, const View& x, const Geometry& g, std::int64_t sample) {
  return weight_norm<double>(dy, x, g, sample);
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
