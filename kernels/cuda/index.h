// Gather and scatter, with one id per slice or per element, and random masks. The host cannot check
// ids without waiting for the device: an id past the end reads as NaN (-1 in integers) and is not
// written to.
#pragma once

#include <algorithm>

#include "core/cuda/capture.h"
#include "kernels/cuda/copy_fill.h"
#include "kernels/cuda/reduce_ops.h"
#include "kernels/cuda/runtime/device_backend.h"
#include "kernels/cuda/runtime/scratch.h"
#include "kernels/host_device/dropout_counter.h"
#include "kernels/host_device/reciprocal.h"

namespace sotto {

// Row-major coordinates of elements, without one axis.
struct Slices {
  int rank;
  int axis;
  Divisor size[6];  // 1 along the axis

  Slices(const View& v, int axis) : rank(v.rank), axis(axis) {
    for (int i = 0; i < rank; ++i) {
      size[i] = Divisor(i == axis ? 1 : v.size[i]);
      numel_ *= i == axis ? 1 : v.size[i];
    }
  }
  std::int64_t numel() const { return numel_; }
  // The offset in v of element `index` of a slice.
  HD std::int64_t offset(const View& v, std::int64_t index) const {
    std::int64_t sum = 0;
    for (int i = rank - 1; i > 0; --i) {
      const auto [rest, at] = size[i](index);
      sum += at * v.stride[i];
      index = rest;
    }
    return rank == 0 ? 0 : sum + index * v.stride[0];  // axis 0 is not divided
  }

 private:
  std::int64_t numel_ = 1;
};

template <class Bits>
struct Gather {
  Slices slices;
  Divisor width;  // elements in a slice
  View x, ids, y;
  Bits zero, poison;

  HD void operator()(std::int64_t index) const {
    const auto [k, at] = width(index);
    const std::int64_t id = ids.as<const std::int64_t>()[k * ids.stride[0]];
    const int axis = slices.axis;
    const std::int64_t from = slices.offset(x, at) + id * x.stride[axis];
    const Bits outside = id < 0 ? zero : poison;
    y.as<Bits>()[slices.offset(y, at) + k * y.stride[axis]] =
        id >= 0 && id < x.size[axis] ? x.as<const Bits>()[from] : outside;
  }
};

// The ids of a scatter_add. All ids outside the axis count as one id, after the last.
struct ScatterIds {
  View ids;
  std::int64_t size;  // of the axis

  HD std::int64_t count() const { return ids.size[0]; }
  HD std::int64_t operator[](std::int64_t k) const {
    const std::int64_t id = ids.as<const std::int64_t>()[k * ids.stride[0]];
    return id >= 0 && id < size ? id : size;
  }
};

// sorted[r] = the place of the r-th id in order; equal ids keep their order. One team for each id,
// which counts those before it.
struct SortIds {
  ScatterIds ids;
  std::int64_t* sorted;

  template <class Team>
  HD void operator()(const Team& team, std::int64_t k) const {
    const std::int64_t id = ids[k];
    double before = 0;
    for (std::int64_t j = team.rank(); j < ids.count(); j += team.size())
      before += ids[j] < id || (ids[j] == id && j < k) ? 1 : 0;
    before = team.fold(Folding{Reduction::sum}, before);
    if (team.rank() == 0) sorted[static_cast<std::int64_t>(before)] = k;
  }
};

// Adds the slices of one id, in order, to a block of columns of its slice of y. One team per
// position in the sorted ids and block of columns; only teams at an id's first position work.
template <class A>
struct AddSorted {
  Slices slices;
  std::int64_t width, blocks;
  std::int64_t each;  // ids per slice
  View x, y;
  ScatterIds ids;
  const std::int64_t* sorted;

  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    const std::int64_t first = index / blocks, id = ids[sorted[first]];
    if (id == ids.size || (first > 0 && ids[sorted[first - 1]] == id)) return;
    const std::int64_t end = end_of(team, first, id);
    for (std::int64_t i = index % blocks * team.size() + team.rank(); i < width;
         i += blocks * team.size())
      add(i, id, first, end);
  }

 private:
  // The first place after `first` with another id.
  template <class Team>
  HD std::int64_t end_of(const Team& team, std::int64_t first, std::int64_t id) const {
    for (std::int64_t begin = first + 1; begin < ids.count(); begin += team.size()) {
      const std::int64_t mine = begin + team.rank();
      const bool other = mine < ids.count() && ids[sorted[mine]] != id;
      const auto place = static_cast<double>(other ? mine : ids.count());
      const auto end = static_cast<std::int64_t>(team.fold(Folding{Reduction::min}, place));
      if (end < ids.count()) return end;
    }
    return ids.count();
  }
  // Some elements are read before they are added.
  HD void add(std::int64_t i, std::int64_t id, std::int64_t first, std::int64_t end) const {
    constexpr int ahead = 32 / sizeof(A);
    const std::int64_t to = slices.offset(y, i) + id * y.stride[slices.axis],
                       from = slices.offset(x, i);
    A sum = load_as<A>(y.data, y.dtype, to);
    for (std::int64_t at = first; at < end; at += ahead) {
      A read[ahead];
      for (int k = 0; k < ahead; ++k)
        if (at + k < end) read[k] = element(from, sorted[at + k]);
      for (int k = 0; k < ahead; ++k)
        if (at + k < end) sum = as_stored(sum + read[k], y.dtype);
    }
    store_as(sum, y.data, y.dtype, to);
  }
  HD A element(std::int64_t from, std::int64_t k) const {
    return load_as<A>(x.data, x.dtype, from + (each == 1 ? k : k / each) * x.stride[slices.axis]);
  }
};

template <class Bits>
struct TakeAlong {
  Slices lines;
  Divisor count;  // number of lines
  View x, ids, y;
  Bits poison;

  HD void operator()(std::int64_t index) const {
    const auto [k, line] = count(index);
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
    const Gather<Bits> gather{Slices(to, 0), Divisor(to.size[1]), from, ids, to,
                              {{0, 0}},      {{~0ull, ~0ull}}};
    return exec.for_each(to.numel(), gather);
  }
  dispatch_bits(x.dtype, [&]<class Bits>(std::type_identity<Bits>) {
    const Slices slices(y, axis);
    const Bits ones = static_cast<Bits>(~Bits{0});
    exec.for_each(y.numel(),
                  Gather<Bits>{slices, Divisor(slices.numel()), x, ids, y, Bits{0}, ones});
  });
}

template <class Exec>
void DeviceBackend<Exec>::scatter_add(View x, View ids, int axis, View y) {
  const Exec exec = execution("scatter_add", {&x, &ids, &y});
  const Slices slices(x, axis);
  if (x.numel() == 0) return;
  const ScatterIds all{ids, y.size[axis]};
  const Scratch<std::int64_t> sorted(exec.device(), all.count());
  exec.for_each_team(all.count(), all.count(), SortIds{all, sorted.data()});
  constexpr std::int64_t columns = 128;  // in a block, so that a frequent id has many teams
  const std::int64_t width = slices.numel(), blocks = (width + columns - 1) / columns;
  with_arithmetic(y.dtype, [&](auto type) {
    exec.for_each_team(all.count() * blocks, std::min(width, columns),
                       AddSorted<decltype(type)>{slices, width, blocks, all.count() / x.size[axis],
                                                 x, y, all, sorted.data()});
  });
}

template <class Exec>
void DeviceBackend<Exec>::take_along(View x, View ids, int axis, View y) {
  const Exec exec = execution("take_along", {&x, &ids, &y});
  if (y.numel() == 0) return;
  dispatch_bits(x.dtype, [&]<class Bits>(std::type_identity<Bits>) {
    const Slices lines(y, axis);
    const Bits ones = static_cast<Bits>(~Bits{0});
    exec.for_each(y.numel(), TakeAlong<Bits>{lines, Divisor(lines.numel()), x, ids, y, ones});
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
