// A function of values applied to views of any strides and types, an element or 16 bytes of them
// for each thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "sotto/core/view.h"
#include "sotto/kernels/functors.h"
#include "sotto/kernels/loop_nest.h"

namespace sotto {

// What one instruction of a GPU loads or stores at most.
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

// Where element `index` of the loops lies in each view.
template <std::size_t N>
struct Offsets {
  std::int64_t of[N];
};

// In 32 bits where that is enough: GPUs divide integers of 64 bits slowly.
template <class Integer, std::size_t N>
HD Offsets<N> split(const LoopNest<N>& nest, Integer index) {
  Offsets<N> y{};
  for (int axis = nest.rank - 1; axis >= 0; --axis) {
    const auto size = static_cast<Integer>(nest.size[axis]);
    const Integer next = axis == 0 ? 0 : index / size;
    const std::int64_t at = index - next * size;
    for (std::size_t v = 0; v < N; ++v) y.of[v] += at * nest.stride[v][axis];
    index = next;
  }
  return y;
}
template <std::size_t N>
HD Offsets<N> offsets_at(const LoopNest<N>& nest, std::int64_t index) {
  constexpr std::int64_t narrow = std::int64_t{1} << 32;
  return nest.count <= narrow ? split(nest, static_cast<std::uint32_t>(index))
                              : split(nest, static_cast<std::uint64_t>(index));
}

// y = f(x...) in the arithmetic type A, one element for each index; y is the last view.
template <class A, class F, std::size_t N>
struct StridedMap {
  F f;
  LoopNest<N> nest;
  View view[N];

  StridedMap(F f, const std::array<View, N>& views) : f(f), nest(views) {
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

// The same for views that lie in memory in one order without gaps, all of type T: a pack for each
// index. Operands with one element for all are told by `repeated`.
template <class T, class F, std::size_t N>
struct PackedMap {
  using A = acc_t<T>;
  static constexpr int lanes = pack_bytes / sizeof(T);
  using Values = Pack<T, lanes>;

  F f;
  const T* x[N - 1];
  bool repeated[N - 1];
  T* y;
  std::int64_t count;

  HD void operator()(std::int64_t pack) const {
    const std::int64_t first = pack * lanes;
    if (first + lanes <= count) {
      whole(first, std::make_index_sequence<N - 1>{});
    } else {
      for (std::int64_t i = first; i < count; ++i) one(i, std::make_index_sequence<N - 1>{});
    }
  }

 private:
  template <std::size_t... I>
  HD void whole(std::int64_t first, std::index_sequence<I...>) const {
    const Values operand[] = {load(I, first)...};
    Values result;
    for (int lane = 0; lane < lanes; ++lane) {
      result.value[lane] = T(f(A(operand[I].value[lane])...));
    }
    *reinterpret_cast<Values*>(y + first) = result;
  }
  HD Values load(std::size_t operand, std::int64_t first) const {
    if (!repeated[operand]) return *reinterpret_cast<const Values*>(x[operand] + first);
    Values same;
    for (T& value : same.value) value = *x[operand];
    return same;
  }
  template <std::size_t... I>
  HD void one(std::int64_t i, std::index_sequence<I...>) const {
    y[i] = T(f(A(x[I][repeated[I] ? 0 : i])...));
  }
};

// Whether the views of a nest can be walked in packs: as PackedMap says, and aligned.
template <std::size_t N>
bool packable(const LoopNest<N>& nest, const std::array<View, N>& views) {
  bool fits = nest.rank == 1 && nest.stride[N - 1][0] == 1;
  for (std::size_t v = 0; v < N && fits; ++v) {
    const auto address = reinterpret_cast<std::uintptr_t>(views[v].data);
    const bool single = nest.stride[v][0] == 0 && v < N - 1;
    fits = views[v].dtype == views[N - 1].dtype &&
           (single || (nest.stride[v][0] == 1 && address % pack_bytes == 0));
  }
  return fits;
}

// y = f(x...) by packs, where the views allow it; whether they do. y is the last view. Not for f64,
// whose arithmetic GPUs are slow at: it goes one by one.
template <class Exec, class F, std::size_t N>
bool packed_map(const Exec& exec, const std::array<View, N>& views, F f) {
  const LoopNest<N> nest(views);
  if (!packable(nest, views)) return false;
  const auto run = [&]<class T>(std::type_identity<T>) {
    PackedMap<T, F, N> packed{f, {}, {}, views[N - 1].template as<T>(), nest.count};
    for (std::size_t v = 0; v < N - 1; ++v) {
      packed.x[v] = views[v].template as<T>();
      packed.repeated[v] = nest.stride[v][0] == 0;
    }
    exec.for_each((packed.count + packed.lanes - 1) / packed.lanes, packed);
    return true;
  };
  switch (views[N - 1].dtype) {
    case Dtype::f32: return run(std::type_identity<float>{});
    case Dtype::f16: return run(std::type_identity<f16>{});
    case Dtype::bf16: return run(std::type_identity<bf16>{});
    default: return false;
  }
}

// The same one by one, for any views. A is the arithmetic type: double for f64, else float.
template <class A, class Exec, class F, std::size_t N>
void strided_map(const Exec& exec, const std::array<View, N>& views, F f) {
  const StridedMap<A, F, N> strided(f, views);
  exec.for_each(strided.nest.count, strided);
}

// Calls call(std::type_identity<F>{}) for the functor at `index`, while running: a kernel for all
// functors where one for each would only take long to compile.
template <class... F, class Call>
HD void with_functor(FunctorList<F...>, int index, Call&& call) {
  int i = 0;
  ((i++ == index ? call(std::type_identity<F>{}) : void()), ...);
}

// Calls call(A{}) with the arithmetic type of a floating-point dtype.
template <class F>
void with_arithmetic(Dtype dtype, F&& call) {
  if (dtype == Dtype::f64) {
    call(double{});
  } else {
    call(float{});
  }
}

}  // namespace sotto
