// Ghost norms of convolutions by Gram products of pixels: |dw|^2 = sum_{s,t} <patch s, patch t> <dy
// s, dy t>. If the window moves by single pixels, <patch s, patch t> = sum_k <pixel s + k, pixel t
// + k>: each product of two pixels serves one pair of patches per tap, and patches are never
// stored. With 3 x 3 taps that takes a ninth of the multiplications of Gram products of patches.
#include "kernels/cpu/conv/conv_gram.h"

#include <algorithm>
#include <vector>

#include "core/threads/parallel.h"
#include "core/threads/simd_dispatch.h"
#include "kernels/cpu/conv/conv_images.h"
#include "kernels/cpu/conv/gram_sum.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/grain.h"

namespace sotto {
namespace {

// The pixels of an image with its padding, flattened. A window's position has the index of its
// first tap, and tap k of any position is offsets[k] further on. Padding after the image may be
// negative: those pixels are stored, but in no window.
struct Grid {
  explicit Grid(const Geometry& g);
  std::int64_t at(const std::int64_t* place) const {
    return (place[0] * size[1] + place[1]) * size[2] + place[2];
  }

  std::int64_t size[3];
  std::int64_t pixels;               // including padding
  std::int64_t line;                 // the index of the last position, plus 1
  std::vector<std::int64_t> inputs;  // index of each pixel of the image
  std::vector<std::int64_t> places;  // index of each position
  std::vector<std::int64_t> offsets;
};

// Calls f(place) for each place of a box, the last axis fastest.
template <class F>
void for_each_place(const std::int64_t* box, F&& f) {
  std::int64_t p[3];
  for (p[0] = 0; p[0] < box[0]; ++p[0]) {
    for (p[1] = 0; p[1] < box[1]; ++p[1]) {
      for (p[2] = 0; p[2] < box[2]; ++p[2]) f(p);
    }
  }
}

Grid::Grid(const Geometry& g) {
  const Window& w = g.window;
  for (int axis = 0; axis < 3; ++axis) {
    size[axis] = w.before[axis] + g.in[axis] + std::max<std::int64_t>(w.after[axis], 0);
  }
  pixels = size[0] * size[1] * size[2];
  for_each_place(g.in, [&](const std::int64_t* p) {
    const std::int64_t moved[3] = {p[0] + w.before[0], p[1] + w.before[1], p[2] + w.before[2]};
    inputs.push_back(at(moved));
  });
  for_each_place(g.out, [&](const std::int64_t* p) { places.push_back(at(p)); });
  for_each_place(w.kernel, [&](const std::int64_t* p) {
    const std::int64_t tap[3] = {p[0] * w.dilation[0], p[1] * w.dilation[1], p[2] * w.dilation[2]};
    offsets.push_back(at(tap));
  });
  line = places.empty() ? 0 : places.back() + 1;
}

// Computes norms with the scratch memory of one thread.
template <class T>
class Grams {
 public:
  Grams(const Geometry& g, const Grid& grid)
      : g_(g),
        grid_(grid),
        products_(square(std::max(g.pixels(), g.positions()))),
        of_pixels_(square(grid.pixels)),
        of_slopes_(square(grid.line)),
        of_patches_(grid.line) {
    std::fill_n(of_pixels_.data(), square(grid.pixels), T{0});
    std::fill_n(of_slopes_.data(), square(grid.line), T{0});
  }

  // The Gram sum of one sample's images, channels-last.
  GramSum operator()(T* dy, T* x) {
    GramSum sum;
    for (std::int64_t group = 0; group < g_.window.groups; ++group) {
      gram(x, g_.channels, group, grid_.inputs, {of_pixels_.data(), grid_.pixels});
      gram(dy, g_.outputs, group, grid_.places, {of_slopes_.data(), grid_.line});
      for (const std::int64_t s : grid_.places) add_row(s, sum);
    }
    return sum;
  }

 private:
  struct Square {
    T* data;
    std::int64_t side;
  };
  static std::int64_t square(std::int64_t side) { return side * side; }

  // Stores the inner products of all pixels of an image a [pixels, width], over the channels of one
  // group, at their places on the grid; the other entries stay zero.
  void gram(T* a, std::int64_t width, std::int64_t group, const std::vector<std::int64_t>& places,
            Square y) const {
    const std::int64_t part = width / g_.window.groups, count = std::ssize(places);
    const Matrix m{a + group * part, dtype_of<T>(), count, part, width, 1};
    product(m, m.transposed(), false, {products_.data(), dtype_of<T>(), count, count, count, 1});
    const T* from = products_.data();
    for (const std::int64_t row : places) {
      T* to = y.data + row * y.side;
      for (const std::int64_t column : places) to[column] = *from++;
    }
  }

  // Adds the terms of position s with itself and with earlier positions; the latter count twice.
  void add_row(std::int64_t s, GramSum& sum) {
    std::fill_n(of_patches_.data(), s + 1, T{0});
    for (const std::int64_t k : grid_.offsets) {
      const T* row = of_pixels_.data() + (s + k) * grid_.pixels + k;
      T* to = of_patches_.data();
      for (std::int64_t t = 0; t <= s; ++t) to[t] += row[t];
    }
    const T* grads = of_slopes_.data() + s * grid_.line;
    sum.add(of_patches_.data(), grads, s, 2);
    sum.add(of_patches_.data() + s, grads + s, 1);
  }

  const Geometry& g_;
  const Grid& grid_;
  Values<T> products_, of_pixels_, of_slopes_, of_patches_;
};

template <class T>
void norms(const View& dy, const View& x, const Geometry& g, double* y) {
  const Grid grid(g);
  const std::int64_t work = g.pixels() * g.pixels() * g.channels;
  parallel_for(g.samples, product_grain(work), [&](std::int64_t begin, std::int64_t end) {
    Grams<T> grams(g, grid);
    for (std::int64_t n = begin; n < end; ++n) {
      Images<T> grads(dy, {n, n + 1}), in(x, {n, n + 1});
      grads.load();
      in.load();
      GramSum sum;
      simd_dispatch([&] { sum = grams(grads.data(), in.data()); });
      y[n] = sum.accurate() ? sum.value : exact_weight_norm(dy, x, g, n);
    }
  });
}

}  // namespace

bool CpuBackend::conv_gram_norms(View dy, View x, const Window& window, View y) {
  for (int axis = 0; axis < 3; ++axis)
    if (window.stride[axis] != 1 || window.before[axis] < 0) return false;
  const Geometry g(x, dy, window);
  if (x.dtype == Dtype::f64) {
    norms<double>(dy, x, g, y.as<double>());
  } else {
    norms<float>(dy, x, g, y.as<double>());
  }
  return true;
}

}  // namespace sotto
