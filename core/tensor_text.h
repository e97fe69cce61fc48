// Tensors as text: the shape, the type, the device, and at most a screen of values.
#pragma once

#include <iosfwd>
#include <string>

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

// Prints to_string(x).
std::ostream& operator<<(std::ostream& out, const Tensor& x);

}  // namespace sotto

// Formats a tensor as to_string() does.
template <>
struct fmt::formatter<sotto::Tensor> {
  constexpr auto parse(fmt::format_parse_context& context) const { return context.begin(); }
  fmt::appender format(const sotto::Tensor& x, fmt::format_context& context) const;
};
