// The check that a file's text is UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace sotto {

// Throws SystemFailure, with the name, the offset and the byte, for a text that is not UTF-8.
void expect_utf8(std::string_view text, const std::string& name);

}  // namespace sotto
