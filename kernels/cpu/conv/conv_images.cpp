#include "kernels/cpu/conv/conv_images.h"

#include <algorithm>

namespace sotto {
namespace {

// Taps of a window row (kernel axis 2), `count` from tap `first` on, that are contiguous in the
// input from `pixel` on; pixel -1 means padding.
struct Run {
  std::int64_t first;
  std::int64_t count;
  std::int64_t pixel;
};

// Calls f(run) for the taps of one row of the window. Its first tap is tap.first and would be at
// column `start` of the input line that begins at pixel tap.pixel (-1: outside of the input).
template <class F>
void for_each_run_in_line(const Geometry& g, Run tap, std::int64_t start, F&& f) {
  const std::int64_t kernel = g.window.kernel[2], width = g.in[2], step = g.window.dilation[2];
  if (tap.pixel < 0) return f(Run{tap.first, kernel, -1});
  if (step == 1) {
    const std::int64_t low = std::clamp<std::int64_t>(-start, 0, kernel);
    const std::int64_t high = std::clamp<std::int64_t>(width - start, low, kernel);
    if (low > 0) f(Run{tap.first, low, -1});
    if (high > low) f(Run{tap.first + low, high - low, tap.pixel + start + low});
    if (kernel > high) f(Run{tap.first + high, kernel - high, -1});
    return;
  }
  for (std::int64_t k = 0; k < kernel; ++k) {
    const std::int64_t column = start + k * step;
    const bool inside = column >= 0 && column < width;
    f(Run{tap.first + k, 1, inside ? tap.pixel + column : -1});
  }
}

// Calls f(run) for all taps of the window at `row`, in order.
template <class F>
void for_each_run(const Geometry& g, std::int64_t row, F&& f) {
  const Window& w = g.window;
  const std::int64_t sample = row / g.positions(), position = row % g.positions();
  const std::int64_t at[3] = {position / (g.out[1] * g.out[2]), position / g.out[2] % g.out[1],
                              position % g.out[2]};
  std::int64_t start[3];
  for (int axis = 0; axis < 3; ++axis) start[axis] = at[axis] * w.stride[axis] - w.before[axis];
  std::int64_t tap = 0;
  for (std::int64_t kd = 0; kd < w.kernel[0]; ++kd) {
    const std::int64_t d = start[0] + kd * w.dilation[0];
    for (std::int64_t kh = 0; kh < w.kernel[1]; ++kh, tap += w.kernel[2]) {
      const std::int64_t h = start[1] + kh * w.dilation[1];
      const bool inside = d >= 0 && d < g.in[0] && h >= 0 && h < g.in[1];
      const std::int64_t line = inside ? ((sample * g.in[0] + d) * g.in[1] + h) * g.in[2] : -1;
      for_each_run_in_line(g, Run{tap, 0, line}, start[2], f);
    }
  }
}

// Calls f(first, from, count) for the pieces of a patch, in order: `count` elements from number
// `first` on are those at `from`, or zeros if that is null.
template <class T, class F>
void for_each_piece(const T* x, const Geometry& g, std::int64_t row, std::int64_t group, F&& f) {
  const std::int64_t part = g.group_channels(), first = group * part;
  for_each_run(g, row, [&](const Run& run) {
    if (run.pixel < 0) return f(run.first * part, static_cast<const T*>(nullptr), run.count * part);
    if (part == g.channels) return f(run.first * part, x + run.pixel * part, run.count * part);
    for (std::int64_t i = 0; i < run.count; ++i)
      f((run.first + i) * part, x + (run.pixel + i) * g.channels + first, part);
  });
}

// Calls f(image value, copy value) for every element of the view and of its channels-last copy.
template <class S, class T, class F>
void for_each_pair(const View& v, T* copy, F&& f) {
  const std::int64_t channels = v.size[1], width = v.size[4];
  const std::int64_t lines = v.size[0] * v.size[2] * v.size[3];
  for (std::int64_t line = 0; line < lines; ++line) {
    const std::int64_t h = line % v.size[3], d = line / v.size[3] % v.size[2];
    const std::int64_t n = line / (v.size[3] * v.size[2]);
    S* first = v.as<S>() + n * v.stride[0] + d * v.stride[2] + h * v.stride[3];
    T* to = copy + line * width * channels;
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t w = 0; w < width; ++w) {
        f(first[c * v.stride[1] + w * v.stride[4]], to[w * channels + c]);
      }
    }
  }
}

}  // namespace

template <class T>
Images<T>::Images(const View& view, Range samples) : view_(view) {
  view_.size[0] = samples.count();
  const std::int64_t offset = samples.first * view.stride[0];
  view_.data = view.as<char>() + offset * static_cast<std::int64_t>(size_of(view.dtype));
  if (lies(view_)) {
    data_ = view_.as<T>();
  } else {
    copy_.emplace(static_cast<std::size_t>(view_.numel()) * sizeof(T), cpu);
    data_ = static_cast<T*>(copy_->data());
  }
}

template <class T>
void Images<T>::load() {
  if (!copy_) return;
  dispatch_float(view_.dtype, [&]<class S>(std::type_identity<S>) {
    if (is_channels_last(view_)) {
      const S* from = view_.as<S>();
      const std::int64_t count = view_.numel();
      for (std::int64_t i = 0; i < count; ++i) data_[i] = static_cast<acc_t<S>>(from[i]);
      return;
    }
    for_each_pair<S>(view_, data_, [](const S& from, T& to) { to = static_cast<acc_t<S>>(from); });
  });
}

template <class T>
void Images<T>::store() const {
  if (!copy_) return;
  dispatch_float(view_.dtype, [&]<class S>(std::type_identity<S>) {
    if (is_channels_last(view_)) {
      S* to = view_.as<S>();
      const std::int64_t count = view_.numel();
      for (std::int64_t i = 0; i < count; ++i)
        to[i] = static_cast<S>(static_cast<acc_t<S>>(data_[i]));
      return;
    }
    for_each_pair<S>(view_, data_, [](S& to, const T& from) {
      to = static_cast<S>(static_cast<acc_t<S>>(from));
    });
  });
}

template <class T>
void gather_patches(const T* x, const Geometry& g, Range rows, std::int64_t group, T* patches) {
  for (std::int64_t row = rows.first; row < rows.last; ++row, patches += g.taps()) {
    for_each_piece(x, g, row, group, [&](std::int64_t first, const T* from, std::int64_t count) {
      from ? std::copy_n(from, count, patches + first) : std::fill_n(patches + first, count, T{0});
    });
  }
}

template <class T>
void write_patch(const T* x, const Geometry& g, std::int64_t row, std::int64_t group,
                 const tiles::RowOfPanels<T>& to) {
  for_each_piece(x, g, row, group, [&](std::int64_t first, const T* from, std::int64_t count) {
    to.put(first, from, count);
  });
}

template <class T>
void scatter_patches(const T* patches, const Geometry& g, Range rows, std::int64_t group, T* x) {
  const std::int64_t part = g.group_channels(), first = group * part;
  for (std::int64_t row = rows.first; row < rows.last; ++row, patches += g.taps()) {
    for_each_run(g, row, [&](const Run& run) {
      if (run.pixel < 0) return;
      const T* from = patches + run.first * part;
      for (std::int64_t i = 0; i < run.count; ++i) {
        T* to = x + (run.pixel + i) * g.channels + first;
        for (std::int64_t c = 0; c < part; ++c) to[c] += from[i * part + c];
      }
    });
  }
}

template class Images<float>;
template class Images<double>;
template void gather_patches(const float*, const Geometry&, Range, std::int64_t, float*);
template void gather_patches(const double*, const Geometry&, Range, std::int64_t, double*);
template void write_patch(const float*, const Geometry&, std::int64_t, std::int64_t,
                          const tiles::RowOfPanels<float>&);
template void write_patch(const double*, const Geometry&, std::int64_t, std::int64_t,
                          const tiles::RowOfPanels<double>&);
template void scatter_patches(const float*, const Geometry&, Range, std::int64_t, float*);
template void scatter_patches(const double*, const Geometry&, Range, std::int64_t, double*);

}  // namespace sotto
