// Joins the elements of a list into one text.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace sotto {

// The strings f(element), separated by `separator`: "a, b, c".
template <class Range, class F = std::identity>
std::string join(const Range& elements, std::string_view separator, F&& f = {}) {
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
