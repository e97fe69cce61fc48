// The beginning of error texts about a file: its format, its path, and the part of it.
#pragma once

#include <string>

#include "core/error.h"
#include "core/io/utf8.h"

namespace sotto {

struct FileContext {
  std::string text;  // "safetensors: model.safetensors"

  // Throws std::invalid_argument, beginning with the text, unless `ok`.
  template <class... Args>
  void check(bool ok, fmt::format_string<const Args&...> what, const Args&... args) const {
    if (!ok) [[unlikely]]
      fail(what, args...);
  }
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<const Args&...> what, const Args&... args) const {
    sotto::fail(text + ": " + fmt::vformat(what, fmt::make_format_args(args...)));
  }
  FileContext part(const std::string& what) const { return {text + ": " + what}; }
  FileContext tensor(const std::string& name) const { return part("tensor " + excerpt(name)); }
};

}  // namespace sotto
