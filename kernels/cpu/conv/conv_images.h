// The portable convolutions' form of images: channels-last, in the accumulation type; and the
// conversions between images and patches (the inputs under a window, as a row).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "core/tensor.h"
#include "kernels/cpu/gemm/row_of_panels.h"
#include "kernels/cpu/per_sample/dot.h"
#include "kernels/host_device/geometry.h"

namespace sotto {

// The half-open range [first, last).
struct Range {
  std::int64_t first;
  std::int64_t last;
  std::int64_t count() const { return last - first; }
};

// Scratch for `count` values.
template <class T>
class Values {
 public:
  explicit Values(std::int64_t count)
      : storage_(static_cast<std::size_t>(count) * sizeof(T), cpu) {}
  T* data() const { return static_cast<T*>(storage_.data()); }

 private:
  Storage storage_;
};

// Samples of [n, c, d, h, w] as T, channels-last: the tensor's own memory if it is stored so,
// otherwise a copy that load() fills and store() writes back.
template <class T>
class Images {
 public:
  Images(const View& view, Range samples);
  static bool lies(const View& view) {
    return view.dtype == dtype_of<T>() && is_channels_last(view);
  }
  void load();
  void store() const;
  T* data() const { return data_; }

 private:
  View view_;  // of the given samples only
  std::optional<Storage> copy_;
  T* data_;
};

// Weight gradient number `index` in an array with one per sample.
inline View row_of(const View& rows, std::int64_t index) {
  const std::int64_t offset =
      index * rows.stride[0] * static_cast<std::int64_t>(size_of(rows.dtype));
  View row{rows.as<char>() + offset, rows.dtype, 5, {}, {}};
  std::copy_n(rows.size + 1, 5, row.size);
  std::copy_n(rows.stride + 1, 5, row.stride);
  return row;
}

// Writes one sample's entry of Backend::conv_weight_norms: the squared norms of its weight
// gradient, of dy and of x.
template <class T>
void write_norms(const Geometry& g, double of_weight, const T* dy, const T* x, double* y) {
  y[0] = of_weight;
  y[1] = squared_norm(dy, g.positions() * g.outputs);
  y[2] = squared_norm(x, g.pixels() * g.channels);
}

// patches[r, k, c] = the pixel at tap k of position r in the group's channel c, zero in the
// padding. `rows` counts positions over the samples of x.
template <class T>
void gather_patches(const T* x, const Geometry& g, Range rows, std::int64_t group, T* patches);
// One row of the patches as a row of a right factor.
template <class T>
void write_patch(const T* x, const Geometry& g, std::int64_t row, std::int64_t group,
                 const tiles::RowOfPanels<T>& to);
// The transpose of gather_patches: adds every patch to the pixels it was gathered from.
template <class T>
void scatter_patches(const T* patches, const Geometry& g, Range rows, std::int64_t group, T* x);

}  // namespace sotto
