#include "kernels/cpu/conv/conv_weight_norms.h"

#include <algorithm>
#include <type_traits>

#include "core/threads/simd_dispatch.h"
#include "kernels/cpu/gemm/microkernel.h"

namespace sotto {
namespace {

constexpr std::int64_t max_lanes = 16;  // the most that a vector has

// Factors of one sample, which all tiles read.
template <class T>
struct Factors {
  const T *dy, *x;
  std::int64_t positions, outputs;
  const std::int64_t* offsets;
};

// sums = a tile of the weight gradient (Rows outputs from `output` on, by Vectors vectors of taps),
// summed over the positions first .. last - 1.
template <class R, int Rows, int Vectors, class V = typename R::Vector>
void one_chain(const Factors<typename R::T>& f, std::int64_t output, std::int64_t tap,
               std::int64_t first, std::int64_t last, V (&sums)[Rows][Vectors]) {
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) sums[i][v] = V{};
  }
  const typename R::T* a = f.dy + first * f.outputs + output;
#pragma GCC unroll 2
  for (std::int64_t p = first; p < last; ++p) {
    const typename R::T* const b = f.x + f.offsets[p] + tap;
    V y[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) y[v] = tiles::load<V>(b + v * R::lanes);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const V x = a[i] - V{};  // in all lanes
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sums[i][v] += x * y[v];
    }
    a += f.outputs;
  }
}

// sums[lane] += the squares of a tile with `columns` valid columns. Four squares at a time are
// added in T.
template <class R, int Rows, int Vectors, class V = typename R::Vector>
void add_squares(const V (&dw)[Rows][Vectors], std::int64_t columns, double* sums) {
  using T = typename R::T;
  constexpr int together = std::min(Rows, 4);
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) {
    const std::int64_t there = std::min<std::int64_t>(R::lanes, columns - v * R::lanes);
#pragma GCC unroll 4
    for (int first = 0; first < Rows; first += together) {
      V squares{};
#pragma GCC unroll 4
      for (int i = first; i < first + together; ++i) squares += dw[i][v] * dw[i][v];
      T lanes[R::lanes];
      tiles::store(squares, lanes);
      if (there < R::lanes) std::fill(lanes + there, lanes + R::lanes, T{0});
      for (int lane = 0; lane < R::lanes; ++lane) sums[lane] += static_cast<double>(lanes[lane]);
    }
  }
}

// Adds the squares of one tile, whose elements are sums in the k-blocks of products
// (product_chain).
template <class R, int Rows, int Vectors, class T = typename R::T>
void one_tile(const Factors<T>& f, std::int64_t output, std::int64_t tap, std::int64_t columns,
              double* sums) {
  using V = typename R::Vector;
  V dw[Rows][Vectors];
  if (f.positions <= product_chain) {
    one_chain<R>(f, output, tap, 0, f.positions, dw);
    return add_squares<R>(dw, columns, sums);
  }
  V all[Rows][Vectors] = {};
  for (std::int64_t first = 0; first < f.positions; first += product_chain) {
    one_chain<R>(f, output, tap, first, std::min(f.positions, first + product_chain), dw);
    for (int i = 0; i < Rows; ++i) {
      for (int v = 0; v < Vectors; ++v) all[i][v] += dw[i][v];
    }
  }
  add_squares<R>(all, columns, sums);
}

// Adds the squares of the tiles of all outputs, in tiles of `Rows` rows, then of fewer.
template <class R, int Vectors, int Rows = 8, class T = typename R::T>
void for_outputs(const Factors<T>& f, std::int64_t output, std::int64_t tap, std::int64_t columns,
                 double* sums) {
  for (; f.outputs - output >= Rows; output += Rows)
    one_tile<R, Rows, Vectors>(f, output, tap, columns, sums);
  if constexpr (Rows > 1) for_outputs<R, Vectors, Rows / 2>(f, output, tap, columns, sums);
}

// Adds the squares for one row of the window, whose taps are contiguous from `tap` on.
template <class R, class T = typename R::T>
void row_of_window(const Factors<T>& f, std::int64_t tap, std::int64_t columns, double* sums) {
  for (std::int64_t done = 0; done < columns;) {
    const std::int64_t vectors = (columns - done + R::lanes - 1) / R::lanes;
    const std::int64_t width = vectors == 4 ? 2 : std::min<std::int64_t>(vectors, 3);
    const std::int64_t some = std::min(columns - done, width * R::lanes);
    if (width == 3)
      for_outputs<R, 3, R::rows>(f, 0, tap + done, some, sums);
    else if (width == 2)
      for_outputs<R, 2, R::rows>(f, 0, tap + done, some, sums);
    else
      for_outputs<R, 1, R::rows>(f, 0, tap + done, some, sums);
    done += some;
  }
}

// The number of pixels along an axis with its padding; negative padding at the end removes none.
std::int64_t padded(const Geometry& g, int axis) {
  return g.in[axis] + g.window.before[axis] + std::max<std::int64_t>(g.window.after[axis], 0);
}

// Elements of the padded image, plus vectors that may be read behind it.
std::int64_t padded_size(const Geometry& g) {
  return padded(g, 0) * padded(g, 1) * padded(g, 2) * g.channels + 3 * max_lanes;
}

// Adds the squares of a whole gradient; f.x is the padded image.
template <class T>
void add_tiles(const Geometry& g, const Factors<T>& f, double* sums) {
  const Window& w = g.window;
  const auto by = [&]<class R>(std::type_identity<R>) {
    for (std::int64_t d = 0; d < w.kernel[0]; ++d) {
      for (std::int64_t h = 0; h < w.kernel[1]; ++h) {
        const std::int64_t row = d * w.dilation[0] * padded(g, 1) + h * w.dilation[1];
        row_of_window<R>(f, row * padded(g, 2) * g.channels, w.kernel[2] * g.channels, sums);
      }
    }
  };
#if defined(__x86_64__)
  if (has_avx512()) return in_avx512([&] { by(std::type_identity<tiles::Registers<T, 64>>{}); });
  if (has_avx2()) return in_avx2([&] { by(std::type_identity<tiles::Registers<T, 32>>{}); });
#endif
  by(std::type_identity<tiles::Registers<T, 16>>{});
}

}  // namespace

template <class T>
bool WeightNorms<T>::suits(const Geometry& g) {
  const Window& w = g.window;
  const bool whole = w.before[0] >= 0 && w.before[1] >= 0 && w.before[2] >= 0;
  return has_avx512() && whole && w.groups == 1 && w.dilation[2] == 1 && g.outputs >= 4 &&
         w.kernel[2] * g.channels >= max_lanes;
}

template <class T>
WeightNorms<T>::WeightNorms(const Geometry& g) : g_(g), image_(padded_size(g)) {
  const Window& w = g.window;
  for (std::int64_t d = 0; d < g.out[0]; ++d) {
    for (std::int64_t h = 0; h < g.out[1]; ++h) {
      const std::int64_t row = (d * w.stride[0] * padded(g, 1) + h * w.stride[1]) * padded(g, 2);
      for (std::int64_t v = 0; v < g.out[2]; ++v)
        offsets_.push_back((row + v * w.stride[2]) * g.channels);
    }
  }
  std::fill_n(image_.data(), padded_size(g), T{0});
}

template <class T>
double WeightNorms<T>::of(const T* dy, const T* x) {
  const std::int64_t line = g_.in[2] * g_.channels;
  for (std::int64_t d = 0; d < g_.in[0]; ++d) {
    for (std::int64_t h = 0; h < g_.in[1]; ++h) {
      const std::int64_t row = (d + g_.window.before[0]) * padded(g_, 1) + h + g_.window.before[1];
      std::copy_n(x + (d * g_.in[1] + h) * line, line,
                  image_.data() + (row * padded(g_, 2) + g_.window.before[2]) * g_.channels);
    }
  }
  double sums[max_lanes] = {};
  add_tiles<T>(g_, {dy, image_.data(), g_.positions(), g_.outputs, offsets_.data()}, sums);
  double total = 0;
  for (const double sum : sums) total += sum;
  return squares_hold(total) || std::is_same_v<T, double> ? total : -1;
}

template class WeightNorms<float>;
template class WeightNorms<double>;

}  // namespace sotto
