// What a test says of an exception: its type and a part of its text.
#pragma once

#include <stdexcept>
#include <string_view>

// Whether f throws an E whose text holds `part`. Other exceptions pass through.
template <class E = std::invalid_argument, class F>
bool throws(F&& f, std::string_view part) {
  try {
    f();
  } catch (const E& error) {
    return std::string_view(error.what()).find(part) != std::string_view::npos;
  }
  return false;
}
