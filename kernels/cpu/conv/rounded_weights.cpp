// Sums of weight gradients in which each image is a term (Backend::add_rounded_weights).
#include <algorithm>

#include "core/tensor.h"
#include "kernels/cpu/conv/conv_parts.h"
#include "kernels/cpu/conv/pair_conv.h"
#include "kernels/cpu/cpu_backend.h"

namespace sotto {
namespace {

// Bytes of patches at a time.
constexpr std::int64_t held_patches = std::int64_t{8} << 20;

View samples_of(const View& v, Range samples) { return slice(v, 0, samples.first, samples.last); }

// Images [n, c, d, h, w] as [n, d, h, w, c].
View by_positions(const View& v) {
  return {v.data,
          v.dtype,
          5,
          {v.size[0], v.size[2], v.size[3], v.size[4], v.size[1]},
          {v.stride[0], v.stride[2], v.stride[3], v.stride[4], v.stride[1]}};
}

// Rows [n, positions, o] as [n, d, h, w, o].
View as_places(const View& rows, const Geometry& g) {
  const std::int64_t o = g.outputs, w = g.out[2] * o, h = g.out[1] * w;
  return {rows.data,
          rows.dtype,
          5,
          {rows.size[0], g.out[0], g.out[1], g.out[2], o},
          {rows.stride[0], h, w, o, 1}};
}

}  // namespace

bool CpuBackend::add_rounded_weights(View dy, View x, const Window& window, View w, double spacing,
                                     View dw) {
  const Geometry g(x, dy, window);
  if (PairConv::suits(g, dy, x)) {
    add_rounded_pair_conv(g, dy, x, w, spacing, dw);
    return true;
  }
  if (dy.dtype == Dtype::f64 || x.dtype != dy.dtype || !has_few_positions(g)) return false;
  const std::int64_t bytes = g.positions() * g.taps() * static_cast<std::int64_t>(size_of(x.dtype)),
                     step = std::clamp<std::int64_t>(held_patches / bytes, 1, g.samples);
  const Tensor patches = Tensor::empty({step, g.positions(), g.taps()}, x.dtype),
               grads = Tensor::empty({step, g.positions(), g.outputs}, dy.dtype);
  const View sum{dw.data, dw.dtype, 2, {g.outputs, g.taps()}, {g.taps(), 1}};
  for (std::int64_t n = 0; n < g.samples; n += step) {
    const Range part{n, std::min(n + step, g.samples)};
    const View a = samples_of(patches.view(), {0, part.count()}),
               b = samples_of(grads.view(), {0, part.count()});
    unfold(samples_of(x, part), window, a);
    copy(by_positions(samples_of(dy, part)), as_places(b, g));
    add_rounded_products(b, a, samples_of(w, part), spacing, sum);
  }
  return true;
}

}  // namespace sotto
