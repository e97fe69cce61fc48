// Tells a file by its first bytes, for messages about one that is not of the kind that was
// expected.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace sotto {

// The kind of a file, and perhaps advice: "a GIF picture", "text in UTF-16: ...". Empty for plain
// text and for unknown kinds. A few kilobytes of the file's beginning suffice.
std::string_view file_kind(std::span<const std::uint8_t> beginning);

// " (it looks like a GIF picture)", or "" if file_kind() is empty.
std::string looks_like(std::span<const std::uint8_t> beginning);

}  // namespace sotto
