// Copies, fills and elementwise primitives of two or more operands.
#pragma once

#include <cstring>

#include "kernels/cuda/copy_fill.h"
#include "kernels/cuda/cuda_map.h"
#include "kernels/cuda/runtime/device_backend.h"
#include "kernels/functors/functors.h"

namespace sotto {

// dy times the derivative with respect to operand `which`.
template <class F, int which>
struct BinaryGrad {
  template <class A>
  HD A operator()(A a, A b, A dy) const {
    if constexpr (which == 0)
      return dy * F{}.grad_a(a, b);
    else
      return dy * F{}.grad_b(a, b);
  }
};

struct AnyBinary {
  int op;
  template <class A>
  HD A operator()(A a, A b) const {
    A y = a;
    with_functor(BinaryFunctors{}, op, [&]<class F>(std::type_identity<F>) { y = F{}(a, b); });
    return y;
  }
};

template <int which>
struct AnyBinaryGrad {
  int op;
  template <class A>
  HD A operator()(A a, A b, A dy) const {
    A d = dy;
    with_functor(BinaryFunctors{}, op,
                 [&]<class F>(std::type_identity<F>) { d = BinaryGrad<F, which>{}(a, b, dy); });
    return d;
  }
};

template <class A>
struct Scaled {
  A alpha;
  HD A operator()(A x) const { return alpha * x; }
};

template <class A>
struct ScaledSum {
  A alpha, beta;
  HD A operator()(A x, A y) const { return alpha * x + beta * y; }
};

// Copies between any two types: integers by way of 64-bit integers, floating-point numbers by way
// of double, which represents all narrower types.
struct ConvertingCopy {
  IndexedNest<2> nest;
  View x, y;

  HD void operator()(std::int64_t i) const {
    const Offsets<2> at = offsets_at(nest, i);
    if (is_float(x.dtype)) {
      store(load_as<double>(x.data, x.dtype, at.of[0]), at.of[1]);
    } else {
      store(integer(at.of[0]), at.of[1]);
    }
  }

 private:
  HD std::int64_t integer(std::int64_t at) const {
    switch (x.dtype) {
      case Dtype::i64: return x.as<const std::int64_t>()[at];
      case Dtype::i32: return x.as<const std::int32_t>()[at];
      case Dtype::u8: return x.as<const std::uint8_t>()[at];
      default: return x.as<const bool>()[at] ? 1 : 0;
    }
  }
  template <class V>
  HD void store(V value, std::int64_t at) const {
    const auto whole = static_cast<std::int64_t>(value);
    switch (y.dtype) {
      case Dtype::i64: y.as<std::int64_t>()[at] = whole; break;
      case Dtype::i32: y.as<std::int32_t>()[at] = static_cast<std::int32_t>(whole); break;
      case Dtype::u8: y.as<std::uint8_t>()[at] = static_cast<std::uint8_t>(whole); break;
      case Dtype::boolean: y.as<bool>()[at] = whole != 0; break;
      default: store_as(value, y.data, y.dtype, at);
    }
  }
};

// Converts between floating-point types of different widths, for views that lie side by side along
// one axis: one pack of the wider type per index. The last pack of a contiguous array may be short.
template <class X, class Y>
struct PackedCast {
  static constexpr int lanes = pack_bytes / (sizeof(X) > sizeof(Y) ? sizeof(X) : sizeof(Y));
  IndexedNest<2> packs;
  const X* x;
  Y* y;
  std::int64_t count;  // elements

  HD static Y cast(X v) { return static_cast<Y>(static_cast<acc_t<Y>>(static_cast<acc_t<X>>(v))); }
  HD void operator()(std::int64_t pack) const {
    const Offsets<2> at = offsets_at(packs, pack);
    const X* const x_at = x + at.of[0];
    Y* const y_at = y + at.of[1];
    const std::int64_t left = count - pack * lanes;
    if (left >= lanes) {
      const auto from = *reinterpret_cast<const Pack<X, lanes>*>(x_at);
      Pack<Y, lanes> to;
      for (int lane = 0; lane < lanes; ++lane) to.value[lane] = cast(from.value[lane]);
      *reinterpret_cast<Pack<Y, lanes>*>(y_at) = to;
    } else {
      for (std::int64_t i = 0; i < left; ++i) y_at[i] = cast(x_at[i]);
    }
  }
};

// y = a + b for an a and a y of f32 and a b of 16 bits, which lie side by side along one axis: one
// pack of b per index. The last pack of contiguous arrays may be short.
template <class B>
struct PackedWideSum {
  static constexpr int lanes = pack_bytes / sizeof(B);
  using Wide = Pack<float, lanes>;
  IndexedNest<3> packs;
  const float* a;
  const B* b;
  float* y;
  std::int64_t count;  // elements

  HD void operator()(std::int64_t pack) const {
    const Offsets<3> at = offsets_at(packs, pack);
    const float* const p = a + at.of[0];
    const B* const q = b + at.of[1];
    float* const to = y + at.of[2];
    const std::int64_t left = count - pack * lanes;
    if (left >= lanes) {
      Wide sum = *reinterpret_cast<const Wide*>(p);
      const auto more = *reinterpret_cast<const Pack<B, lanes>*>(q);
      for (int lane = 0; lane < lanes; ++lane)
        sum.value[lane] += static_cast<float>(more.value[lane]);
      *reinterpret_cast<Wide*>(to) = sum;
    } else {
      for (std::int64_t i = 0; i < left; ++i) to[i] = p[i] + static_cast<float>(q[i]);
    }
  }
};

template <class Bits>
struct Choose {
  IndexedNest<4> nest;
  View condition;
  const Bits* a;
  const Bits* b;
  Bits* y;
  HD void operator()(std::int64_t i) const {
    const Offsets<4> at = offsets_at(nest, i);
    y[at.of[3]] = holds(at.of[0]) ? a[at.of[1]] : b[at.of[2]];
  }

 private:
  HD bool holds(std::int64_t at) const {
    switch (condition.dtype) {
      case Dtype::i64: return condition.as<const std::int64_t>()[at] != 0;
      case Dtype::i32: return condition.as<const std::int32_t>()[at] != 0;
      case Dtype::u8: return condition.as<const std::uint8_t>()[at] != 0;
      case Dtype::boolean: return condition.as<const bool>()[at];
      default: return load_as<double>(condition.data, condition.dtype, at) != 0;
    }
  }
};

// Choose in packs, for a condition with one byte per element.
template <class Bits>
struct PackedChoose {
  static constexpr int lanes = pack_bytes / sizeof(Bits);
  IndexedNest<4> packs;
  const std::uint8_t* condition;
  const Bits *a, *b;
  Bits* y;
  HD void operator()(std::int64_t pack) const {
    using Values = Pack<Bits, lanes>;
    const Offsets<4> at = offsets_at(packs, pack);
    const auto holds = load(condition, 0, at);
    const Values then = load(a, 1, at), otherwise = load(b, 2, at);
    Values result;
    for (int lane = 0; lane < lanes; ++lane)
      result.value[lane] = holds.value[lane] != 0 ? then.value[lane] : otherwise.value[lane];
    *reinterpret_cast<Values*>(y + at.of[3]) = result;
  }

 private:
  template <class X>
  HD Pack<X, lanes> load(const X* x, int operand, const Offsets<4>& at) const {
    if (packs.stride[operand][packs.rank - 1] != 0)
      return *reinterpret_cast<const Pack<X, lanes>*>(x + at.of[operand]);
    Pack<X, lanes> same;
    for (X& value : same.value) value = x[at.of[operand]];
    return same;
  }
};

template <class Exec>
void DeviceBackend<Exec>::fill(double value, View y) {
  const Exec exec = execution("fill", {&y});
  const LoopNest<1> nest(std::array{y});
  if (nest.count == 0) return;
  dispatch(y.dtype, [&]<class T>(std::type_identity<T>) {
    const T element = static_cast<T>(static_cast<acc_t<T>>(value));
    dispatch_bits(y.dtype, [&]<class Bits>(std::type_identity<Bits>) {
      if constexpr (sizeof(Bits) == sizeof(T)) {
        Bits bits;
        std::memcpy(&bits, &element, sizeof bits);
        if (nest.rank == 1 && nest.stride[0][0] == 1 && aligned(y)) {
          const PackedFill<Bits> packed{bits, y.as<Bits>(), nest.count};
          exec.for_each((nest.count + packed.lanes - 1) / packed.lanes, packed);
        } else {
          exec.for_each(nest.count, StridedFill<Bits>{bits, IndexedNest<1>(nest), y.as<Bits>()});
        }
      }
    });
  });
}

// Converts between floating-point types in packs and returns true, if the views allow it.
template <class Exec>
bool packed_cast(const Exec& exec, const LoopNest<2>& nest, View x, View y) {
  if (!is_float(x.dtype) || !is_float(y.dtype) || nest.stride[0][nest.rank - 1] != 1) return false;
  bool done = false;
  dispatch_float(x.dtype, [&]<class X>(std::type_identity<X>) {
    dispatch_float(y.dtype, [&]<class Y>(std::type_identity<Y>) {
      if constexpr (!std::is_same_v<X, Y>) {
        constexpr int lanes = PackedCast<X, Y>::lanes;
        if (!packable(nest, std::array{x, y}, lanes)) return;
        const IndexedNest<2> packs(in_packs(nest, lanes));
        exec.for_each(packs.count, PackedCast<X, Y>{packs, x.as<X>(), y.as<Y>(), nest.count});
        done = true;
      }
    });
  });
  return done;
}

template <class Exec>
void DeviceBackend<Exec>::copy(View x, View y) {
  const Exec exec = execution("copy", {&x, &y});
  const LoopNest<2> nest(std::array{x, y});
  if (nest.count == 0) return;
  const bool flat = nest.rank == 1 && nest.stride[0][0] == 1 && nest.stride[1][0] == 1;
  if (x.dtype == y.dtype && flat) {
    exec.copy(x.data, y.data, static_cast<std::size_t>(nest.count) * size_of(x.dtype));
  } else if (x.dtype == y.dtype) {
    dispatch_bits(x.dtype, [&]<class Bits>(std::type_identity<Bits>) {
      copy_strided<Bits>(exec, nest, x, y);
    });
  } else if (!packed_cast(exec, nest, x, y)) {
    exec.for_each(nest.count, ConvertingCopy{IndexedNest<2>(nest), x, y});
  }
}

// Computes y = a + b in packs and returns true, if b has 16 bits, a and y are f32, and the views
// allow it.
template <class Exec>
bool packed_wide_sum(const Exec& exec, View a, View b, View y) {
  const LoopNest<3> nest(std::array{a, b, y});
  bool done = false;
  const auto run = [&]<class B>(std::type_identity<B>) {
    constexpr int lanes = PackedWideSum<B>::lanes;
    const int last = nest.rank - 1;
    if (!packable(nest, std::array{a, b, y}, lanes) || nest.stride[0][last] != 1 ||
        nest.stride[1][last] != 1)
      return;
    const IndexedNest<3> packs(in_packs(nest, lanes));
    exec.for_each(packs.count,
                  PackedWideSum<B>{packs, a.as<float>(), b.as<B>(), y.as<float>(), nest.count});
    done = true;
  };
  if (b.dtype == Dtype::bf16) run(std::type_identity<bf16>{});
  if (b.dtype == Dtype::f16) run(std::type_identity<f16>{});
  return done;
}

template <class Exec>
void DeviceBackend<Exec>::binary(int op, View a, View b, View y) {
  const Exec exec = execution("binary", {&a, &b, &y});
  const std::array views{a, b, y};
  bool done = a.dtype != b.dtype && packed_wide_sum(exec, a, b, y);
  if (done) return;
  BinaryFunctors::at(op,
                     [&]<class F>(std::type_identity<F>) { done = packed_map(exec, views, F{}); });
  if (done) return;
  with_arithmetic(a.dtype,
                  [&](auto type) { strided_map<decltype(type)>(exec, views, AnyBinary{op}); });
}

template <int which, class Exec>
void binary_slope(const Exec& exec, int op, const std::array<View, 4>& views) {
  bool done = false;
  BinaryFunctors::at(op, [&]<class F>(std::type_identity<F>) {
    done = packed_map(exec, views, BinaryGrad<F, which>{});
  });
  if (done) return;
  with_arithmetic(views[0].dtype, [&](auto type) {
    strided_map<decltype(type)>(exec, views, AnyBinaryGrad<which>{op});
  });
}

template <class Exec>
void DeviceBackend<Exec>::binary_grad(int op, int which, View a, View b, View dy, View d) {
  const Exec exec = execution("binary_grad", {&a, &b, &dy, &d});
  if (which == 0) {
    binary_slope<0>(exec, op, {a, b, dy, d});
  } else {
    binary_slope<1>(exec, op, {a, b, dy, d});
  }
}

template <class Exec>
void DeviceBackend<Exec>::where(View condition, View a, View b, View y) {
  const Exec exec = execution("where", {&condition, &a, &b, &y});
  const LoopNest<4> nest(std::array{condition, a, b, y});
  if (nest.count == 0) return;
  dispatch_bits(y.dtype, [&]<class Bits>(std::type_identity<Bits>) {
    constexpr int lanes = PackedChoose<Bits>::lanes;
    // PackedChoose does not handle the short last pack that a contiguous array may have.
    const bool whole = nest.size[nest.rank - 1] % lanes == 0 && size_of(condition.dtype) == 1;
    if (whole && packable(nest, std::array{condition, a, b, y}, lanes)) {
      const IndexedNest<4> packs(in_packs(nest, lanes));
      exec.for_each(packs.count, PackedChoose<Bits>{packs, condition.as<std::uint8_t>(),
                                                    a.as<Bits>(), b.as<Bits>(), y.as<Bits>()});
    } else {
      exec.for_each(nest.count, Choose<Bits>{IndexedNest<4>(nest), condition, a.as<Bits>(),
                                             b.as<Bits>(), y.as<Bits>()});
    }
  });
}

template <class A, class Exec, class F, std::size_t N>
void map_either_way(const Exec& exec, const std::array<View, N>& views, F f) {
  if (!packed_map(exec, views, f)) strided_map<A>(exec, views, f);
}

template <class Exec>
void DeviceBackend<Exec>::axpby(double alpha, View x, double beta, View y) {
  const Exec exec = execution("axpby", {&x, &y});
  with_arithmetic(y.dtype, [&](auto type) {
    using A = decltype(type);
    const A a = static_cast<A>(alpha), b = static_cast<A>(beta);
    if (beta == 0) {
      map_either_way<A>(exec, std::array{x, y}, Scaled<A>{a});
    } else {
      map_either_way<A>(exec, std::array{x, y, y}, ScaledSum<A>{a, b});
    }
  });
}

}  // namespace sotto
