#include "kernels/cpu/conv/depthwise.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "core/threads/simd_dispatch.h"
#include "kernels/cpu/gemm/microkernel.h"

namespace sotto {
namespace {

// Calls f with the registers of the widest vectors that the processor has.
template <class T, class F>
void with_registers(const F& f) {
#if defined(__x86_64__)
  if (has_avx512()) return in_avx512([&] { f(std::type_identity<tiles::Registers<T, 64>>{}); });
  if (has_avx2()) return in_avx2([&] { f(std::type_identity<tiles::Registers<T, 32>>{}); });
#endif
  f(std::type_identity<tiles::Registers<T, 16>>{});
}

// A vector of channels, or one channel where fewer are left.
template <class V, class T>
V read(const T* from) {
  if constexpr (std::is_same_v<V, T>) {
    return *from;
  } else {
    return tiles::load<V>(from);
  }
}
template <class V, class T>
void write(const V& v, T* to) {
  if constexpr (std::is_same_v<V, T>) {
    *to = v;
  } else {
    tiles::store(v, to);
  }
}

// Calls f(std::type_identity<V>{}, channel) for blocks of channels: vectors, then single ones.
template <class R, class F>
void for_channels(std::int64_t channels, const F& f) {
  using T = typename R::T;
  std::int64_t c = 0;
  for (; c + R::lanes <= channels; c += R::lanes) f(std::type_identity<typename R::Vector>{}, c);
  for (; c < channels; ++c) f(std::type_identity<T>{}, c);
}

// The image that is read: its values, its sizes and its channels.
template <class T>
struct Source {
  const T* values;
  const std::int64_t (&size)[3];
  std::int64_t channels;
};

// y[i] = bias + sum over the taps of place i of x[place] w[tap].
template <class T>
void gather(const AxisTaps (&axes)[3], const Source<T>& x, const std::int64_t (&kernel)[3],
            const T* w, const T* bias, T* y) {
  const std::int64_t c = x.channels;
  struct Line {
    const T *x, *w;
  };
  std::vector<Line> lines;
  const auto one_line = [&]<class R>(std::type_identity<R>) {
    for_channels<R>(c, [&]<class V>(std::type_identity<V>, std::int64_t at) {
      for (std::int64_t place = 0; place < axes[2].places(); ++place) {
        V sum = bias ? read<V>(bias + at) : V{};
        for (const Line& line : lines) {
          for (const auto& [tap, from] : axes[2][place])
            sum += read<V>(line.x + from * c + at) * read<V>(line.w + tap * c + at);
        }
        write(sum, y + place * c + at);
      }
    });
  };
  for (std::int64_t d = 0; d < axes[0].places(); ++d) {
    for (std::int64_t h = 0; h < axes[1].places(); ++h) {
      lines.clear();
      for (const auto& i : axes[0][d]) {
        for (const auto& j : axes[1][h]) {
          lines.push_back({x.values + (i.place * x.size[1] + j.place) * x.size[2] * c,
                           w + (i.tap * kernel[1] + j.tap) * kernel[2] * c});
        }
      }
      with_registers<T>(one_line);
      y += axes[2].places() * c;
    }
  }
}

// The positions of a line that see a pixel through a tap.
struct Inside {
  std::int64_t first, last;
};

std::vector<Inside> inside(const Geometry& g) {
  std::vector<Inside> all(static_cast<std::size_t>(g.window.kernel[2]), {g.out[2], 0});
  const AxisTaps positions = AxisTaps::of_result(g, 2);
  for (std::int64_t p = 0; p < g.out[2]; ++p) {
    for (const auto& [tap, pixel] : positions[p]) {
      auto& [first, last] = all[static_cast<std::size_t>(tap)];
      first = std::min(first, p);
      last = p + 1;
    }
  }
  return all;
}

// dw[k] += the sum over some positions of a line of dy, for a line of x and the taps k of a row of
// the window.
template <class T>
void add_line(const Geometry& g, const std::vector<Inside>& all, Range some, const T* dy,
              const T* x, T* dw) {
  const std::int64_t c = g.channels, step = g.window.stride[2] * c;
  with_registers<T>([&]<class R>(std::type_identity<R>) {
    for_channels<R>(c, [&]<class V>(std::type_identity<V>, std::int64_t at) {
      for (std::int64_t k = 0; k < g.window.kernel[2]; ++k) {
        const Inside& seen = all[static_cast<std::size_t>(k)];
        const std::int64_t first = std::max(some.first, seen.first),
                           last = std::min(some.last, seen.last),
                           shift = k * g.window.dilation[2] - g.window.before[2];
        V sum{};
        for (std::int64_t p = first; p < last; ++p)
          sum += read<V>(dy + p * c + at) * read<V>(x + p * step + shift * c + at);
        if (first < last) write(read<V>(dw + k * c + at) + sum, dw + k * c + at);
      }
    });
  });
}

}  // namespace

bool is_depthwise(const Geometry& g) {
  return g.window.groups > 1 && g.window.groups == g.channels && g.window.groups == g.outputs;
}

AxisTaps AxisTaps::of_result(const Geometry& g, int axis) {
  const Window& w = g.window;
  AxisTaps all;
  for (std::int64_t p = 0; p < g.out[axis]; ++p) {
    for (std::int64_t k = 0; k < w.kernel[axis]; ++k) {
      const std::int64_t q = p * w.stride[axis] - w.before[axis] + k * w.dilation[axis];
      if (q >= 0 && q < g.in[axis]) all.taps_.push_back({k, q});
    }
    all.begins_.push_back(all.taps_.size());
  }
  return all;
}

AxisTaps AxisTaps::of_input(const Geometry& g, int axis) {
  const Window& w = g.window;
  AxisTaps all;
  for (std::int64_t q = 0; q < g.in[axis]; ++q) {
    for (std::int64_t k = 0; k < w.kernel[axis]; ++k) {
      const std::int64_t from = q + w.before[axis] - k * w.dilation[axis];
      const std::int64_t p = from / w.stride[axis];
      if (from >= 0 && from % w.stride[axis] == 0 && p < g.out[axis]) all.taps_.push_back({k, p});
    }
    all.begins_.push_back(all.taps_.size());
  }
  return all;
}

template <class T>
void Depthwise<T>::forward(const T* x, const T* w, const T* bias, T* y) const {
  const AxisTaps axes[] = {AxisTaps::of_result(g_, 0), AxisTaps::of_result(g_, 1),
                           AxisTaps::of_result(g_, 2)};
  gather<T>(axes, {x, g_.in, g_.channels}, g_.window.kernel, w, bias, y);
}

template <class T>
void Depthwise<T>::data(const T* dy, const T* w, T* dx) const {
  const AxisTaps axes[] = {AxisTaps::of_input(g_, 0), AxisTaps::of_input(g_, 1),
                           AxisTaps::of_input(g_, 2)};
  gather<T>(axes, {dy, g_.out, g_.channels}, g_.window.kernel, w, nullptr, dx);
}

template <class T>
void Depthwise<T>::add_weight(const T* dy, const T* x, T* dw) const {
  const std::int64_t c = g_.channels, width = g_.out[2], *const kernel = g_.window.kernel;
  const std::int64_t size = g_.window.positions() * c;
  const AxisTaps depths = AxisTaps::of_result(g_, 0), heights = AxisTaps::of_result(g_, 1);
  const std::vector<Inside> seen = inside(g_);
  const Values<T> chain(size);
  std::fill_n(chain.data(), size, T{0});
  std::int64_t in_chain = 0;
  const auto end_chain = [&] {
    for (std::int64_t i = 0; i < size; ++i) dw[i] += std::exchange(chain.data()[i], T{0});
    in_chain = 0;
  };
  for (std::int64_t line = 0; line < g_.out[0] * g_.out[1]; ++line) {
    for (Range some{0, 0}; some.first < width; some.first = some.last) {
      some.last = std::min(width, some.first + conv_chain);
      if (in_chain + some.count() > conv_chain) end_chain();
      in_chain += some.count();
      for (const auto& i : depths[line / g_.out[1]]) {
        for (const auto& j : heights[line % g_.out[1]]) {
          add_line(g_, seen, some, dy + line * width * c,
                   x + (i.place * g_.in[1] + j.place) * g_.in[2] * c,
                   chain.data() + (i.tap * kernel[1] + j.tap) * kernel[2] * c);
        }
      }
    }
  }
  end_chain();
}

template <class T>
void sum_depthwise_weight(const View& dy, const View& x, const Geometry& g, Range samples, T* dw) {
  const std::int64_t size = g.outputs * g.taps();
  const Values<T> by_taps(size);
  std::fill_n(by_taps.data(), size, T{0});
  const Depthwise<T> passes(g);
  for (std::int64_t n = samples.first; n < samples.last; ++n) {
    Images<T> in(x, {n, n + 1}), grads(dy, {n, n + 1});
    in.load();
    grads.load();
    passes.add_weight(grads.data(), in.data(), by_taps.data());
  }
  for (std::int64_t i = 0; i < size; ++i)
    dw[i % g.channels * g.taps() + i / g.channels] = by_taps.data()[i];
}

template class Depthwise<float>;
template class Depthwise<double>;
template void sum_depthwise_weight(const View&, const View&, const Geometry&, Range, float*);
template void sum_depthwise_weight(const View&, const View&, const Geometry&, Range, double*);

}  // namespace sotto
