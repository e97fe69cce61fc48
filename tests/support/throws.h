// Checks the type and the text of an exception.
#pragma once

#include <stdexcept>
#include <string_view>

// True if f throws an E whose text contains `part`. Other exceptions pass through.
template <class E = std::invalid_argument, class F>
bool throws(F&& f, std::string_view part) {
  try {
    f();
  } catch (const E& error) {
    return std::string_view(error.what()).find(part) != std::string_view::npos;
  }
  return false;
}
