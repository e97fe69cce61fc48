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
  LoopNest<1> nest;
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
  LoopNest<2> nest;
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
  LoopNest<2> packs;
  const Bits* x;
  Bits* y;
  HD void operator()(std::int64_t i) const {
    using Values = Pack<Bits, lanes>;
    const Offsets<2> at = offsets_at(packs, i);
    *reinterpret_cast<Values*>(y + at.of[1]) = *reinterpret_cast<const Values*>(x + at.of[0]);
  }
};

inline bool aligned(const View& v) {
  return reinterpret_cast<std::uintptr_t>(v.data) % pack_bytes == 0;
}

}  // namespace sotto
