// Applies a function of values to views of any strides and types. Each thread computes one element
// or one pack of 16 bytes, as decided at launch from addresses, sizes and strides.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/view.h"
#include "kernels/functors/functors.h"
#include "kernels/host_device/loop_nest.h"
#include "kernels/host_device/reciprocal.h"

namespace sotto {

// The largest load or store of one GPU instruction.
inline constexpr int pack_bytes = 16;

template <class T, int lanes>
struct alignas(lanes * sizeof(T)) Pack {
  T value[lanes];
};

// The element at `offset` of an array of a floating-point dtype, as A.
template <class A>
HD A load_as(const void* data, Dtype dtype, std::int64_t offset) {
  switch (dtype) {
    case Dtype::f64: return static_cast<A>(static_cast<const double*>(data)[offset]);
    case Dtype::f32: return static_cast<A>(static_cast<const float*>(data)[offset]);
    case Dtype::f16: return static_cast<A>(float{static_cast<const f16*>(data)[offset]});
    default: return static_cast<A>(float{static_cast<const bf16*>(data)[offset]});
  }
}

template <class A>
HD void store_as(A value, void* data, Dtype dtype, std::int64_t offset) {
  switch (dtype) {
    case Dtype::f64: static_cast<double*>(data)[offset] = static_cast<double>(value); break;
    case Dtype::f32: static_cast<float*>(data)[offset] = static_cast<float>(value); break;
    case Dtype::f16: static_cast<f16*>(data)[offset] = f16(static_cast<float>(value)); break;
    default: static_cast<bf16*>(data)[offset] = bf16(static_cast<float>(value));
  }
}

// `value` as an array of a dtype holds it.
template <class A>
HD A as_stored(A value, Dtype dtype) {
  switch (dtype) {
    case Dtype::f16: return static_cast<A>(float{f16(static_cast<float>(value))});
    case Dtype::bf16: return static_cast<A>(float{bf16(static_cast<float>(value))});
    default: return value;
  }
}

// The offset of element `index` of the loops in each view.
template <std::size_t N>
struct Offsets {
  std::int64_t of[N];
};

// Loops whose indices are split by reciprocals.
template <std::size_t N>
struct IndexedNest : LoopNest<N> {
  Divisor by[6];  // by axis

  explicit IndexedNest(const LoopNest<N>& nest) : LoopNest<N>(nest) {
    for (int axis = 0; axis < nest.rank; ++axis) by[axis] = Divisor(nest.size[axis]);
  }
};

template <std::size_t N>
HD Offsets<N> offsets_at(const IndexedNest<N>& nest, std::int64_t index) {
  Offsets<N> y{};
  for (int axis = nest.rank - 1; axis >= 0; --axis) {
    std::int64_t at = index;
    if (axis > 0) {
      const auto [quotient, remainder] = nest.by[axis](index);
      index = quotient;
      at = remainder;
    }
    for (std::size_t v = 0; v < N; ++v) y.of[v] += at * nest.stride[v][axis];
  }
  return y;
}

// y = f(x...) in the accumulation type A, one element per index; y is the last view.
template <class A, class F, std::size_t N>
struct StridedMap {
  F f;
  IndexedNest<N> nest;
  View view[N];

  StridedMap(F f, const std::array<View, N>& views) : f(f), nest(LoopNest<N>(views)) {
    for (std::size_t v = 0; v < N; ++v) view[v] = views[v];
  }
  HD void operator()(std::int64_t index) const {
    apply(offsets_at(nest, index), std::make_index_sequence<N - 1>{});
  }

 private:
  template <std::size_t... I>
  HD void apply(const Offsets<N>& at, std::index_sequence<I...>) const {
    store_as<A>(f(load_as<A>(view[I].data, view[I].dtype, at.of[I])...), view[N - 1].data,
                view[N - 1].dtype, at.of[N - 1]);
  }
};

// The loops in packs of `lanes` neighbours along the innermost axis, for views that allow it
// (packable). The last pack of a contiguous array may be short.
template <std::size_t N>
LoopNest<N> in_packs(LoopNest<N> nest, int lanes) {
  const int last = nest.rank - 1;
  nest.count = nest.count / nest.size[last];
  nest.size[last] = (nest.size[last] + lanes - 1) / lanes;
  nest.count *= nest.size[last];
  for (std::size_t v = 0; v < N; ++v) nest.stride[v][last] *= lanes;
  return nest;
}

// True if the last view can be written in packs, and each other view read in packs or as one
// repeated element: neighbours are contiguous, and every pack is aligned to its size.
template <std::size_t N>
bool packable(const LoopNest<N>& nest, const std::array<View, N>& views, int lanes) {
  const int last = nest.rank - 1;
  if (nest.count == 0 || (nest.rank > 1 && nest.size[last] % lanes != 0)) return false;
  for (std::size_t v = 0; v < N; ++v) {
    if (nest.stride[v][last] == 0 && v < N - 1) continue;
    const auto bytes = lanes * size_of(views[v].dtype);
    bool fits =
        nest.stride[v][last] == 1 && reinterpret_cast<std::uintptr_t>(views[v].data) % bytes == 0;
    for (int axis = 0; axis < last; ++axis) fits = fits && nest.stride[v][axis] % lanes == 0;
    if (!fits) return false;
  }
  return true;
}

// The values of a pack as floats, and the reverse. Both 16-bit types share one code with a run-time
// test, because the kernels of each functor take long to compile.
template <class Bits, int lanes>
HD void widen(const Pack<Bits, lanes>& pack, Dtype dtype, float (&x)[lanes]) {
  if constexpr (sizeof(Bits) == sizeof(float)) {
    for (int i = 0; i < lanes; ++i) x[i] = std::bit_cast<float>(pack.value[i]);
  } else if (dtype == Dtype::f16) {
    for (int i = 0; i < lanes; ++i) x[i] = std::bit_cast<f16>(pack.value[i]);
  } else {
    for (int i = 0; i < lanes; ++i) x[i] = std::bit_cast<bf16>(pack.value[i]);
  }
}
template <class Bits, int lanes>
HD void narrow(const float (&x)[lanes], Dtype dtype, Pack<Bits, lanes>& pack) {
  if constexpr (sizeof(Bits) == sizeof(float)) {
    for (int i = 0; i < lanes; ++i) pack.value[i] = std::bit_cast<Bits>(x[i]);
  } else if (dtype == Dtype::f16) {
    for (int i = 0; i < lanes; ++i) pack.value[i] = f16(x[i]).bits;
  } else {
    for (int i = 0; i < lanes; ++i) pack.value[i] = bf16(x[i]).bits;
  }
}

// y = f(x...) for elements of one type, f32 or 16-bit, one pack per index. `repeated` marks
// operands with one element for a whole pack.
template <class Bits, class F, std::size_t N>
struct PackedMap {
  static constexpr int lanes = pack_bytes / sizeof(Bits);
  using Values = Pack<Bits, lanes>;

  F f;
  Dtype dtype;
  IndexedNest<N> packs;
  const Bits* x[N - 1];
  bool repeated[N - 1];
  Bits* y;
  std::int64_t count;

  PackedMap(F f, const LoopNest<N>& nest, const std::array<View, N>& views)
      : f(f),
        dtype(views[N - 1].dtype),
        packs(in_packs(nest, lanes)),
        y(views[N - 1].template as<Bits>()),
        count(nest.count) {
    for (std::size_t v = 0; v < N - 1; ++v) {
      x[v] = views[v].template as<Bits>();
      repeated[v] = packs.stride[v][packs.rank - 1] == 0;
    }
  }
  HD void operator()(std::int64_t pack) const {
    const Offsets<N> at = offsets_at(packs, pack);
    const std::int64_t left = count - pack * lanes;
    float operand[N - 1][lanes];
    for (std::size_t v = 0; v < N - 1; ++v) widen(load(v, at.of[v], left), dtype, operand[v]);
    float result[lanes];
    apply(operand, result, std::make_index_sequence<N - 1>{});
    Values values;
    narrow(result, dtype, values);
    if (left >= lanes) {
      *reinterpret_cast<Values*>(y + at.of[N - 1]) = values;
    } else {
      // Constant indices keep the pack in registers.
      for (int i = 0; i < lanes; ++i) {
        if (i < left) y[at.of[N - 1] + i] = values.value[i];
      }
    }
  }

 private:
  template <std::size_t... I>
  HD void apply(const float (&operand)[N - 1][lanes], float (&result)[lanes],
                std::index_sequence<I...>) const {
    for (int lane = 0; lane < lanes; ++lane) result[lane] = f(operand[I][lane]...);
  }
  HD Values load(std::size_t operand, std::int64_t at, std::int64_t left) const {
    if (!repeated[operand] && left >= lanes)
      return *reinterpret_cast<const Values*>(x[operand] + at);
    Values values;
    for (int i = 0; i < lanes; ++i)
      values.value[i] = x[operand][repeated[operand] ? at : at + (i < left ? i : 0)];
    return values;
  }
};

// Computes y = f(x...) in packs and returns true, if the views allow it; y is the last view. Not
// for f64, whose arithmetic is slow on GPUs anyway.
template <class Exec, class F, std::size_t N>
bool packed_map(const Exec& exec, const std::array<View, N>& views, F f) {
  const Dtype dtype = views[N - 1].dtype;
  if (!is_float(dtype) || dtype == Dtype::f64) return false;
  for (const View& view : views) {
    if (view.dtype != dtype) return false;
  }
  const LoopNest<N> nest(views);
  if (!packable(nest, views, pack_bytes / static_cast<int>(size_of(dtype)))) return false;
  const auto run = [&]<class Bits>(std::type_identity<Bits>) {
    const PackedMap<Bits, F, N> packed(f, nest, views);
    exec.for_each(packed.packs.count, packed);
  };
  if (dtype == Dtype::f32) {
    run(std::type_identity<std::uint32_t>{});
  } else {
    run(std::type_identity<std::uint16_t>{});
  }
  return true;
}

// Computes y = f(x...) one element at a time, for any views. A is the accumulation type: double for
// f64, else float.
template <class A, class Exec, class F, std::size_t N>
void strided_map(const Exec& exec, const std::array<View, N>& views, F f) {
  const StridedMap<A, F, N> strided(f, views);
  exec.for_each(strided.nest.count, strided);
}

// Calls call(std::type_identity<F>{}) for the functor at `index`, selected at run time: one kernel
// for all functors, because one kernel each would take long to compile.
template <class... F, class Call>
HD void with_functor(FunctorList<F...>, int index, Call&& call) {
  int i = 0;
  ((i++ == index ? call(std::type_identity<F>{}) : void()), ...);
}

// Calls call(A{}) with the accumulation type of a floating-point dtype.
template <class F>
void with_arithmetic(Dtype dtype, F&& call) {
  if (dtype == Dtype::f64) {
    call(double{});
  } else {
    call(float{});
  }
}

}  // namespace sotto
