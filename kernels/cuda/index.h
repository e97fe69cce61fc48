// Gather and scatter, with one id per slice or per element, and random masks. The host cannot check
// ids without waiting for the device: an id past the end reads as NaN (-1 in integers) and is not
// written to.
#pragma once

#include "core/cuda/capture.h"
#include "kernels/cuda/copy_fill.h"
#include "kernels/cuda/reduce_ops.h"
#include "kernels/cuda/runtime/device_backend.h"
#include "kernels/host_device/dropout_counter.h"

namespace sotto {

// Row-major coordinates of elements, without one axis.
struct Slices {
  int rank;
  int axis;
  std::int64_t size[6];  // size 1 along the axis

  Slices(const View& v, int axis) : rank(v.rank), axis(axis) {
    for (int i = 0; i < rank; ++i) size[i] = i == axis ? 1 : v.size[i];
  }
  HD std::int64_t numel() const {
    std::int64_t product = 1;
    for (int i = 0; i < rank; ++i) product *= size[i];
    return product;
  }
  // The offset in v of element `index` of a slice.
  HD std::int64_t offset(const View& v, std::int64_t index) const {
    std::int64_t sum = 0;
    for (int i = rank - 1; i >= 0; --i) {
      sum += index % size[i] * v.stride[i];
      index /= size[i];
    }
    return sum;
  }
};

template <class Bits>
struct Gather {
  Slices slices;
  std::int64_t width;  // elements in a slice
  View x, ids, y;
  Bits zero, poison;

  HD void operator()(std::int64_t index) const {
    const std::int64_t k = index / width, at = index % width;
    const std::int64_t id = ids.as<const std::int64_t>()[k * ids.stride[0]];
    const int axis = slices.axis;
    const std::int64_t from = slices.offset(x, at) + id * x.stride[axis];
    const Bits outside = id < 0 ? zero : poison;
    y.as<Bits>()[slices.offset(y, at) + k * y.stride[axis]] =
        id >= 0 && id < x.size[axis] ? x.as<const Bits>()[from] : outside;
  }
};

// One team per k whose id did not occur before; it adds all slices with that id, in order.
template <class A>
struct ScatterAdd {
  Slices slices;
  std::int64_t width;
  std::int64_t each;  // ids per slice
  View x, ids, y;

  HD std::int64_t id_at(std::int64_t k) const {
    return ids.as<const std::int64_t>()[k * ids.stride[0]];
  }
  template <class Team>
  HD void operator()(const Team& team, std::int64_t k) const {
    const std::int64_t id = id_at(k);
    if (id < 0 || id >= y.size[slices.axis]) return;
    double before = 0;
    for (std::int64_t j = team.rank(); j < k; j += team.size()) before += id_at(j) == id ? 1 : 0;
    if (team.fold(Folding{Reduction::sum}, before) > 0) return;
    const std::int64_t count = ids.size[0];
    for (std::int64_t first = k; first < count; first += team.size()) {
      const std::int64_t mine = first + team.rank();
      const double found = mine < count && id_at(mine) == id ? 1 : 0;
      if (team.fold(Folding{Reduction::sum}, found) == 0) continue;
      for (std::int64_t j = first; j < first + team.size() && j < count; ++j) {
        if (id_at(j) == id) add(team, j, id);
      }
    }
  }

 private:
  template <class Team>
  HD void add(const Team& team, std::int64_t k, std::int64_t id) const {
    const int axis = slices.axis;
    for (std::int64_t i = team.rank(); i < width; i += team.size()) {
      const std::int64_t to = slices.offset(y, i) + id * y.stride[axis];
      const std::int64_t from = slices.offset(x, i) + k / each * x.stride[axis];
      store_as(load_as<A>(y.data, y.dtype, to) + load_as<A>(x.data, x.dtype, from), y.data, y.dtype,
               to);
    }
  }
};

template <class Bits>
struct TakeAlong {
  Slices lines;
  std::int64_t count;  // number of lines
  View x, ids, y;
  Bits poison;

  HD void operator()(std::int64_t index) const {
    const std::int64_t k = index / count, line = index % count;
    const int axis = lines.axis;
    const std::int64_t id =
        ids.as<const std::int64_t>()[lines.offset(ids, line) + k * ids.stride[axis]];
    const std::int64_t from = lines.offset(x, line) + id * x.stride[axis];
    y.as<Bits>()[lines.offset(y, line) + k * y.stride[axis]] =
        id >= 0 && id < x.size[axis] ? x.as<const Bits>()[from] : poison;
  }
};

// One thread per line, in order, because ids may repeat along the axis.
template <class A>
struct PutAlongAdd {
  Slices lines;
  View x, ids, y;

  HD void operator()(std::int64_t line) const {
    const int axis = lines.axis;
    const std::int64_t first_id = lines.offset(ids, line), first_x = lines.offset(x, line),
                       first_y = lines.offset(y, line);
    for (std::int64_t k = 0; k < ids.size[axis]; ++k) {
      const std::int64_t id = ids.as<const std::int64_t>()[first_id + k * ids.stride[axis]];
      if (id < 0 || id >= y.size[axis]) continue;
      const std::int64_t to = first_y + id * y.stride[axis];
      const A sum = load_as<A>(y.data, y.dtype, to) +
                    load_as<A>(x.data, x.dtype, first_x + k * x.stride[axis]);
      store_as(sum, y.data, y.dtype, to);
    }
  }
};

template <class T>
struct Bernoulli {
  PhiloxKey key;
  const std::uint64_t* rows;
  double keep;
  View y;
  HD void operator()(std::int64_t i) const {
    const std::int64_t each = y.numel() / y.size[0];
    const std::uint64_t* const row = rows + i / each * 2;
    const std::uint64_t number = row[1] + rng_counter(y.size + 1, y.rank - 1, i % each);
    const bool kept = uniform(key_of_row(key, row[0]), number) < keep;
    y.as<T>()[i] = T(acc_t<T>(kept ? 1 : 0));
  }
};

// x with rows of whole packs as its elements, for a row-major and aligned x.
inline View in_packs(View x) {
  const auto lanes = pack_bytes / static_cast<std::int64_t>(size_of(x.dtype));
  View y{x.data, x.dtype, 2, {x.size[0], x.stride[0] / lanes}, {x.stride[0] / lanes, 1}};
  return y;
}
inline bool has_packed_rows(const View& x, int axis) {
  const auto lanes = pack_bytes / static_cast<std::int64_t>(size_of(x.dtype));
  const std::int64_t row = x.size[0] == 0 ? 0 : x.numel() / x.size[0];
  return axis == 0 && x.contiguous() && aligned(x) && row > 0 && row % lanes == 0 &&
         x.stride[0] == row;
}

template <class Exec>
void DeviceBackend<Exec>::gather(View x, View ids, int axis, View y) {
  const Exec exec = execution("gather", {&x, &ids, &y});
  if (y.numel() == 0) return;
  if (has_packed_rows(x, axis) && has_packed_rows(y, axis)) {
    using Bits = Pack<std::uint64_t, 2>;
    const View from = in_packs(x), to = in_packs(y);
    const Gather<Bits> gather{Slices(to, 0), to.size[1], from, ids, to, {{0, 0}}, {{~0ull, ~0ull}}};
    return exec.for_each(to.numel(), gather);
  }
  dispatch_bits(x.dtype, [&]<class Bits>(std::type_identity<Bits>) {
    const Slices slices(y, axis);
    const Bits ones = static_cast<Bits>(~Bits{0});
    exec.for_each(y.numel(), Gather<Bits>{slices, slices.numel(), x, ids, y, Bits{0}, ones});
  });
}

template <class Exec>
void DeviceBackend<Exec>::scatter_add(View x, View ids, int axis, View y) {
  const Exec exec = execution("scatter_add", {&x, &ids, &y});
  const Slices slices(x, axis);
  if (x.numel() == 0) return;
  with_arithmetic(y.dtype, [&](auto type) {
    exec.for_each_team(
        ids.size[0], slices.numel(),
        ScatterAdd<decltype(type)>{slices, slices.numel(), ids.size[0] / x.size[axis], x, ids, y});
  });
}

template <class Exec>
void DeviceBackend<Exec>::take_along(View x, View ids, int axis, View y) {
  const Exec exec = execution("take_along", {&x, &ids, &y});
  if (y.numel() == 0) return;
  dispatch_bits(x.dtype, [&]<class Bits>(std::type_identity<Bits>) {
    const Slices lines(y, axis);
    const Bits ones = static_cast<Bits>(~Bits{0});
    exec.for_each(y.numel(), TakeAlong<Bits>{lines, lines.numel(), x, ids, y, ones});
  });
}

template <class Exec>
void DeviceBackend<Exec>::put_along_add(View x, View ids, int axis, View y) {
  const Exec exec = execution("put_along_add", {&x, &ids, &y});
  if (x.numel() == 0) return;
  with_arithmetic(y.dtype, [&](auto type) {
    const Slices lines(ids, axis);
    exec.for_each(lines.numel(), PutAlongAdd<decltype(type)>{lines, x, ids, y});
  });
}

template <class Exec>
void DeviceBackend<Exec>::bernoulli(PhiloxKey key, View rows, double keep, View y) {
  refuse_capture("public randomness, which the host numbers (dropout)");
  const Exec exec = execution("bernoulli", {&rows, &y});
  if (y.numel() == 0) return;
  dispatch(y.dtype, [&]<class T>(std::type_identity<T>) {
    exec.for_each(y.numel(), Bernoulli<T>{key, rows.as<const std::uint64_t>(), keep, y});
  });
}

}  // namespace sotto
