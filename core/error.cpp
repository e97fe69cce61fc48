#include "core/error.h"

namespace sotto {

void fail(const std::string& text) { throw std::invalid_argument(text); }

void fail(fmt::string_view text, fmt::format_args args) { fail(fmt::vformat(text, args)); }

}  // namespace sotto
