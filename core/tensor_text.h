// Tensors as text: the shape, the type, the device, and at most a screen of values. Tensors,
// shapes, and types with a name() can be streamed and formatted.
#pragma once

#include <concepts>
#include <iosfwd>
#include <string>

#include "core/devices.h"
#include "core/tensor.h"

namespace sotto {

// Returns a first line such as "tensor (2, 3) f32 on cpu" and below it the values, with four
// significant digits and brackets for each axis:
//
//   [[1, 2, 3],
//    [4, 5, 6]]
//
// A tensor of more than 100 elements is abbreviated: each of its last two axes shows its first and
// last three elements, the two axes before them the first and last one, and further axes the first.
std::string to_string(const Tensor& x);

// A type of sotto with a name(): Dtype, Device, and kinds of things.
template <class T>
concept Named = requires(const T& x) {
  { name(x) } -> std::convertible_to<std::string>;
};
template <class T>
concept Written = std::same_as<T, Shape> || std::same_as<T, Tensor>;

// Prints the name or to_string(x): "f32", "cuda:0", "(4, 3)".
template <class T>
requires Named<T> || Written<T> std::ostream& operator<<(std::ostream& out, const T& x) {
  if constexpr (Written<T>)
    return out << to_string(x);
  else
    return out << name(x);
}

}  // namespace sotto

template <>
struct fmt::formatter<sotto::Tensor> {
  constexpr auto parse(fmt::format_parse_context& context) const { return context.begin(); }
  fmt::appender format(const sotto::Tensor& x, fmt::format_context& context) const;
};
