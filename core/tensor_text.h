// Tensors as text for people: the shape, the type, the device, and at most a screen of values.
#pragma once

#include <iosfwd>
#include <string>

#include "core/tensor.h"

namespace sotto {

// "tensor (2, 3) f32 on cpu" and the values below it, in brackets for each axis:
//   [[1, 2, 3],
//    [4, 5, 6]]
// Four significant digits. Of more than 100 elements a long axis shows its first and last three;
// the two axes before the last two show one, and those before them the first alone.
std::string to_string(const Tensor& x);

std::ostream& operator<<(std::ostream& out, const Tensor& x);

}  // namespace sotto

// As by to_string.
template <>
struct fmt::formatter<sotto::Tensor> {
  constexpr auto parse(fmt::format_parse_context& context) const { return context.begin(); }
  fmt::appender format(const sotto::Tensor& x, fmt::format_context& context) const;
};
