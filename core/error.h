// Errors of the caller: one function throws them all, so that every message names the operation and
// its values.
#pragma once

#include <stdexcept>
#include <string>

#include <fmt/core.h>

namespace sotto {

// Throws std::invalid_argument with the text "op: what is wrong: values".
[[noreturn]] void fail(const std::string& text);
// Like fail(text), with the text formatted by fmt::vformat.
[[noreturn]] void fail(fmt::string_view text, fmt::format_args args);

// Throws std::invalid_argument, formatted like fmt::format, unless `ok`.
template <class... Args>
void check(bool ok, fmt::format_string<const Args&...> text, const Args&... args) {
  if (!ok) [[unlikely]]
    fail(text, fmt::make_format_args(args...));
}

// A failure of the machine or of a file, not of the caller: missing file, full disk, no memory.
class SystemFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace sotto
