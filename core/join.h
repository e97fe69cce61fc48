// Lists in messages.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace sotto {

// "a, b, c": what f makes of each element, a string, one after the other.
template <class Range, class F = std::identity>
std::string joined(const Range& elements, std::string_view separator, F&& f = {}) {
  std::string y;
  bool first = true;
  for (const auto& element : elements) {
    if (!first) y += separator;
    first = false;
    y += f(element);
  }
  return y;
}

}  // namespace sotto
