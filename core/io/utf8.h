// UTF-8 (RFC 3629), and text of any bytes that is to be printed, such as the name of a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sotto {

struct Utf8Character {
  char32_t code = 0;      // its number in Unicode
  std::size_t bytes = 0;  // 0: those at this place are no character of UTF-8
};

// The character at an offset below the text's size. Refuses overlong forms, surrogates, and codes
// above U+10FFFF, as RFC 3629 demands.
Utf8Character utf8_character(std::string_view text, std::size_t at);
std::string utf8_bytes(char32_t code);  // one to four bytes

// The number of bytes of the UTF-8 character (RFC 3629) at the beginning of a text of at least one
// byte; 0 if it is invalid.
std::size_t character_bytes(std::string_view text);

// True if every byte belongs to a valid character.
bool valid_utf8(std::string_view text);

// Returns the text as UTF-8 in one line: control characters, by which a name could change a
// terminal's display, and invalid bytes become \x0a, \x1b, \xff.
std::string printable(std::string_view text);

// As printable(), but a text above `max` bytes is cut, with its length behind it. Messages quote
// input by it.
std::string excerpt(std::string_view text, std::size_t max = 100);

}  // namespace sotto
