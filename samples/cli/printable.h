// Names as they can be shown: a file's name may hold any byte but two.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sotto::samples {

// Bytes of the UTF-8 character (RFC 3629) that a text of at least one byte begins with; 0 when it
// begins with none.
std::size_t character_bytes(std::string_view text);

// The text in UTF-8 and in one line: control characters, with which a name could change what a
// terminal shows, and bytes that are no UTF-8 become \x0a, \x1b, \xff.
std::string printable(std::string_view text);

}  // namespace sotto::samples
