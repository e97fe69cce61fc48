// Fills and copies, which treat elements as bits.
#pragma once

#include "kernels/cuda/cuda_map.h"

namespace sotto {

// Calls f(std::type_identity<Bits>{}) with the unsigned integer of an element's size.
template <class F>
decltype(auto) dispatch_bits(Dtype dtype, F&& f) {
  switch (size_of(dtype)) {
    case 1: return f(std::type_identity<std::uint8_t>{});
    case 2: return f(std::type_identity<std::uint16_t>{});
    case 4: return f(std::type_identity<std::uint32_t>{});
    default: return f(std::type_identity<std::uint64_t>{});
  }
}

// y[i] = value
template <class Bits>
struct StridedFill {
  Bits value;
  IndexedNest<1> nest;
  Bits* y;
  HD void operator()(std::int64_t i) const { y[offsets_at(nest, i).of[0]] = value; }
};

// StridedFill for an array without gaps, one pack per index.
template <class Bits>
struct PackedFill {
  static constexpr int lanes = pack_bytes / sizeof(Bits);
  Bits value;
  Bits* y;
  std::int64_t count;
  HD void operator()(std::int64_t pack) const {
    const std::int64_t first = pack * lanes;
    if (first + lanes <= count) {
      Pack<Bits, lanes> same;
      for (Bits& each : same.value) each = value;
      *reinterpret_cast<Pack<Bits, lanes>*>(y + first) = same;
    } else {
      for (std::int64_t i = first; i < count; ++i) y[i] = value;
    }
  }
};

template <class Bits>
struct StridedCopy {
  IndexedNest<2> nest;
  const Bits* x;
  Bits* y;
  HD void operator()(std::int64_t i) const {
    const Offsets<2> at = offsets_at(nest, i);
    y[at.of[1]] = x[at.of[0]];
  }
};

// A copy in packs, for views that allow it (packable).
template <class Bits>
struct PackedCopy {
  static constexpr int lanes = pack_bytes / sizeof(Bits);
  IndexedNest<2> packs;
  const Bits* x;
  Bits* y;
  HD void operator()(std::int64_t i) const {
    using Values = Pack<Bits, lanes>;
    const Offsets<2> at = offsets_at(packs, i);
    *reinterpret_cast<Values*>(y + at.of[1]) = *reinterpret_cast<const Values*>(x + at.of[0]);
  }
};

// A copy from x to y that are contiguous along different axes. A thread reads packs of `lanes` rows
// and writes packs of `lanes` columns.
template <class Bits>
struct TransposingCopy {
  static constexpr int lanes = pack_bytes / sizeof(Bits);
  IndexedNest<2> blocks;
  const Bits* x;
  Bits* y;
  std::int64_t row, column;  // distances of rows in x, and of columns in y
  HD void operator()(std::int64_t i) const {
    using Values = Pack<Bits, lanes>;
    const Offsets<2> at = offsets_at(blocks, i);
    Values rows[lanes];
    for (int k = 0; k < lanes; ++k)
      rows[k] = *reinterpret_cast<const Values*>(x + at.of[0] + k * row);
    for (int k = 0; k < lanes; ++k) {
      Values one;
      for (int j = 0; j < lanes; ++j) one.value[j] = rows[j].value[k];
      *reinterpret_cast<Values*>(y + at.of[1] + k * column) = one;
    }
  }
};

inline bool aligned(const View& v) {
  return reinterpret_cast<std::uintptr_t>(v.data) % pack_bytes == 0;
}

// The axis along which x lies side by side, if TransposingCopy applies to blocks of `lanes` by
// `lanes` elements, else -1.
inline int transposed_axis(const LoopNest<2>& nest, const View& x, const View& y, int lanes) {
  const int last = nest.rank - 1;
  int across = -1;
  for (int axis = 0; axis < last; ++axis) {
    if (nest.stride[0][axis] == 1) across = axis;
  }
  bool fits = across >= 0 && nest.stride[1][last] == 1 && nest.size[last] % lanes == 0 &&
              nest.size[across] % lanes == 0 && aligned(x) && aligned(y);
  for (int axis = 0; axis < nest.rank && fits; ++axis) {
    fits = (axis == across || nest.stride[0][axis] % lanes == 0) &&
           (axis == last || nest.stride[1][axis] % lanes == 0);
  }
  return fits ? across : -1;
}

// The loops over blocks: neighbouring threads read neighbouring blocks of x, two by two beside each
// other in y, which fill a sector of 32 bytes.
inline LoopNest<2> in_blocks(const LoopNest<2>& nest, int across, int lanes) {
  LoopNest<2> y = nest;
  y.rank = 0;
  const auto append = [&](int axis, std::int64_t size, std::int64_t step) {
    y.size[y.rank] = size;
    for (int v = 0; v < 2; ++v) y.stride[v][y.rank] = nest.stride[v][axis] * step;
    ++y.rank;
  };
  const int last = nest.rank - 1;
  for (int axis = 0; axis < last; ++axis) {
    if (axis != across) append(axis, nest.size[axis], 1);
  }
  const std::int64_t blocks = nest.size[last] / lanes;
  constexpr int max_rank = 6, pair = 2;
  const int beside = blocks % pair == 0 && nest.rank < max_rank ? pair : 1;
  append(last, blocks / beside, beside * lanes);
  append(across, nest.size[across] / lanes, lanes);
  if (beside > 1) append(last, beside, lanes);
  y.count = nest.count / lanes / lanes;
  return y;
}

// Copies views of one type that are not contiguous.
template <class Bits, class Exec>
void copy_strided(const Exec& exec, const LoopNest<2>& nest, const View& x, const View& y) {
  constexpr int lanes = PackedCopy<Bits>::lanes;
  const int last = nest.rank - 1;
  if (nest.stride[0][last] == 1 && nest.rank > 1 && packable(nest, std::array{x, y}, lanes)) {
    const IndexedNest<2> packs(in_packs(nest, lanes));
    return exec.for_each(packs.count, PackedCopy<Bits>{packs, x.as<Bits>(), y.as<Bits>()});
  }
  if constexpr (sizeof(Bits) > 1) {  // blocks of bytes would need twice the registers there are
    const int across = transposed_axis(nest, x, y, lanes);
    if (across >= 0) {
      const IndexedNest<2> blocks(in_blocks(nest, across, lanes));
      return exec.for_each(blocks.count,
                           TransposingCopy<Bits>{blocks, x.as<Bits>(), y.as<Bits>(),
                                                 nest.stride[0][last], nest.stride[1][across]});
    }
  }
  exec.for_each(nest.count, StridedCopy<Bits>{IndexedNest<2>(nest), x.as<Bits>(), y.as<Bits>()});
}

}  // namespace sotto
