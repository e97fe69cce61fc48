// Errors of files: one function throws those of all readers, so that every message names the file.
#pragma once

#include <utility>

#include "core/error.h"

namespace sotto {

// Throws SystemFailure, formatted like fmt::format, unless `ok`.
template <class... Args>
void expect(bool ok, fmt::format_string<Args...> text, Args&&... args) {
  if (!ok) throw SystemFailure(fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace sotto
