// Element types of tensors, and the one dispatch from a run-time type to a C++ type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "core/half.h"

namespace sotto {

// The element types. The 16-bit types are storage types: arithmetic on them is in f32 (acc_t).
enum class Dtype : std::uint8_t { f64, f32, f16, bf16, i64, i32, u8, boolean };

// The type in words, as messages spell it: "f32".
const char* name(Dtype dtype);

// Throws std::invalid_argument: `dtype` was given where `wanted` is needed.
[[noreturn]] void bad_dtype(Dtype dtype, const char* wanted);

// Calls f(std::type_identity<T>{}) with the C++ type of a floating-point dtype.
template <class F>
decltype(auto) dispatch_float(Dtype dtype, F&& f) {
  switch (dtype) {
    case Dtype::f64: return f(std::type_identity<double>{});
    case Dtype::f32: return f(std::type_identity<float>{});
    case Dtype::f16: return f(std::type_identity<f16>{});
    case Dtype::bf16: return f(std::type_identity<bf16>{});
    default: bad_dtype(dtype, "a floating-point type");
  }
}

// Calls f(std::type_identity<T>{}) with the C++ type of any dtype.
template <class F>
decltype(auto) dispatch(Dtype dtype, F&& f) {
  switch (dtype) {
    case Dtype::i64: return f(std::type_identity<std::int64_t>{});
    case Dtype::i32: return f(std::type_identity<std::int32_t>{});
    case Dtype::u8: return f(std::type_identity<std::uint8_t>{});
    case Dtype::boolean: return f(std::type_identity<bool>{});
    default: return dispatch_float(dtype, std::forward<F>(f));
  }
}

// The Dtype of a C++ type: dtype_of<float>() is f32.
template <class T>
constexpr Dtype dtype_of() {
  if constexpr (std::is_same_v<T, double>)
    return Dtype::f64;
  else if constexpr (std::is_same_v<T, float>)
    return Dtype::f32;
  else if constexpr (std::is_same_v<T, f16>)
    return Dtype::f16;
  else if constexpr (std::is_same_v<T, bf16>)
    return Dtype::bf16;
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return Dtype::i64;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return Dtype::i32;
  else if constexpr (std::is_same_v<T, std::uint8_t>)
    return Dtype::u8;
  else {
    static_assert(std::is_same_v<T, bool>, "not an element type");
    return Dtype::boolean;
  }
}

// Bytes of one element.
inline std::size_t size_of(Dtype dtype) {
  return dispatch(dtype, []<class T>(std::type_identity<T>) { return sizeof(T); });
}

// True for f64, f32, f16 and bf16.
constexpr bool is_float(Dtype dtype) { return dtype <= Dtype::bf16; }

// True for f16 and bf16.
constexpr bool is_16bit(Dtype dtype) { return dtype == Dtype::f16 || dtype == Dtype::bf16; }

// True for f32 and a type of 16 bits, in either order.
constexpr bool is_mixed(Dtype a, Dtype b) {
  return (a == Dtype::f32 && is_16bit(b)) || (b == Dtype::f32 && is_16bit(a));
}

// The accumulator type for elements of type T: double for f64, float for the other floating-point
// types, std::int64_t for the integers.
template <class T>
using acc_t =
    std::conditional_t<std::is_same_v<T, double>, double,
                       std::conditional_t<std::is_same_v<T, float> || std::is_same_v<T, f16> ||
                                              std::is_same_v<T, bf16>,
                                          float, std::int64_t>>;

}  // namespace sotto
