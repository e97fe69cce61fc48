// Copies, conversions and sums of many arrays in one launch.
#pragma once

#include <bit>

#include "kernels/cuda/arrays.h"
#include "kernels/cuda/cuda_elementwise.h"
#include "kernels/host_device/row_arrays.h"

namespace sotto {

// A word of y: one store of the GPU. nvcc splits stores of 16 bytes to addresses from a table.
using CopiedWord = std::uint64_t;

// An array and the one that it is copied or added to, in packs of one word of y.
struct CopiedArray {
  const void* x;
  void* y;
  std::int64_t size;
  Dtype from, to;
  std::uint8_t lanes;  // of a pack
  bool packed;         // both begin at a pack

  CopiedArray() = default;
  explicit CopiedArray(const ArrayCopy& one)
      : x(one.x.data),
        y(one.y.data),
        size(one.y.numel()),
        from(one.x.dtype),
        to(one.y.dtype),
        lanes(static_cast<std::uint8_t>(sizeof(CopiedWord) / size_of(to))),
        packed(begins_at(y, sizeof(CopiedWord)) && begins_at(x, lanes * size_of(from))) {}
  std::int64_t packs() const { return (size + lanes - 1) / lanes; }

 private:
  static bool begins_at(const void* address, std::size_t bytes) {
    return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
  }
};

// y[i] = x[i], or y[i] += x[i], for the elements of a pack.
template <class X, class Y, bool adds>
struct CopiedPack {
  static constexpr int lanes = sizeof(CopiedWord) / sizeof(Y);
  using Values = Pack<Y, lanes>;

  HD static void write(const CopiedArray& array, std::int64_t pack) {
    const std::int64_t first = pack * lanes, left = array.size - first;
    const X* const x = static_cast<const X*>(array.x) + first;
    Y* const y = static_cast<Y*>(array.y) + first;
    if (array.packed && left >= lanes) {
      const auto from = *reinterpret_cast<const Pack<X, lanes>*>(x);
      const auto word = reinterpret_cast<CopiedWord*>(y);
      Values to;
      if constexpr (adds) to = std::bit_cast<Values>(*word);
      for (int lane = 0; lane < lanes; ++lane)
        to.value[lane] = result(from.value[lane], to.value[lane]);
      *word = std::bit_cast<CopiedWord>(to);
    } else {
      for (std::int64_t i = 0; i < lanes && i < left; ++i) y[i] = result(x[i], y[i]);
    }
  }

 private:
  HD static Y result(X x, [[maybe_unused]] const Y& before) {
    if constexpr (adds)
      return static_cast<Y>(static_cast<acc_t<Y>>(x) + static_cast<acc_t<Y>>(before));
    else if constexpr (std::is_same_v<X, Y>)
      return x;
    else
      return PackedCast<X, Y>::cast(x);
  }
};

// One kernel for copies, and one for sums, whose types are equal.
template <bool adds>
struct CopyArrays {
  ArrayTable<CopiedArray> arrays;

  HD void operator()(std::int64_t index) const {
    const auto [array, pack] = arrays[index];
    if constexpr (adds) {
      with_float(array.to, [&]<class T>(std::type_identity<T>) { write<T, T>(array, pack); });
    } else if (array.from != array.to) {
      with_float(array.from, [&]<class X>(std::type_identity<X>) {
        with_float(array.to, [&]<class Y>(std::type_identity<Y>) {
          if constexpr (!std::is_same_v<X, Y>) write<X, Y>(array, pack);
        });
      });
    } else {
      switch (array.lanes) {
        case 8: return write<std::uint8_t, std::uint8_t>(array, pack);
        case 4: return write<std::uint16_t, std::uint16_t>(array, pack);
        case 2: return write<std::uint32_t, std::uint32_t>(array, pack);
        default: return write<std::uint64_t, std::uint64_t>(array, pack);
      }
    }
  }

 private:
  template <class F>
  HD static void with_float(Dtype dtype, F&& call) {
    switch (dtype) {
      case Dtype::f64: return call(std::type_identity<double>{});
      case Dtype::f32: return call(std::type_identity<float>{});
      case Dtype::f16: return call(std::type_identity<f16>{});
      default: return call(std::type_identity<bf16>{});
    }
  }
  template <class X, class Y>
  HD static void write(const CopiedArray& array, std::int64_t pack) {
    CopiedPack<X, Y, adds>::write(array, pack);
  }
};

template <bool adds, class Exec>
void copy_arrays(const Exec& exec, std::span<const ArrayCopy> all) {
  for_each_table<CopiedArray>(
      std::ssize(all),
      [&](auto& table, std::int64_t k) {
        const CopiedArray array(all[static_cast<std::size_t>(k)]);
        return table.add(array, array.packs());
      },
      [&](const auto& table) { exec.for_each(table.bodies(), CopyArrays<adds>{table}); });
}

template <class Exec>
void DeviceBackend<Exec>::copy_all(std::span<const ArrayCopy> all, bool add) {
  const Exec exec = execution("copy_all", {});
  add ? copy_arrays<true>(exec, all) : copy_arrays<false>(exec, all);
}

}  // namespace sotto
