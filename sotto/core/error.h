// Errors: one function for the caller's mistakes, so that every message names the operation and
// the values it was given.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace sotto {

// Throws std::invalid_argument with the text "op: what is wrong: values".
[[noreturn]] void fail(const std::string& text);

// Throws std::invalid_argument, formatted like fmt::format, unless `ok`.
template <class... Args>
void check(bool ok, fmt::format_string<Args...> text, Args&&... args) {
  if (!ok) [[unlikely]]
    fail(fmt::format(text, std::forward<Args>(args)...));
}

// A failure of the machine or of a file, not of the caller: missing file, full disk, no memory.
class SystemFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace sotto
