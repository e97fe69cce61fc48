// Bytes written as visible characters, as byte-level tokenizers do: bytes 33-126, 161-172 and
// 174-255 are the characters of these numbers, the others in their order U+0100, U+0101, ...
// (Radford et al. 2019, GPT-2).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sotto {

// The characters of a text's bytes.
std::string byte_characters(std::string_view bytes);
// The bytes of such characters; nullopt if the text has others.
std::optional<std::string> bytes_of_characters(std::string_view characters);
// The text with each longest beginning of a character that is not UTF-8 replaced by U+FFFD
// (Unicode 15, section 3.9, "maximal subparts").
std::string replace_invalid(std::string_view bytes);

}  // namespace sotto
