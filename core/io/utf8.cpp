#include "core/io/utf8.h"

#include <fmt/format.h>

namespace sotto {

namespace {

unsigned byte_at(std::string_view text, std::size_t place) {
  return static_cast<unsigned char>(text[place]);
}

// Includes the controls of ISO 6429 from U+0080 to U+009F.
bool is_control(std::string_view character) {
  const unsigned first = byte_at(character, 0);
  return first < 0x20 || first == 0x7f || (first == 0xc2 && byte_at(character, 1) < 0xa0);
}

// A form of RFC 3629, section 3: the first byte of a character of so many bytes, and the smallest
// code that needs it.
struct Form {
  std::uint8_t mask, lead;
  std::size_t bytes;
  char32_t smallest;
};

constexpr Form forms[] = {
    {0x80, 0x00, 1, 0}, {0xe0, 0xc0, 2, 0x80}, {0xf0, 0xe0, 3, 0x800}, {0xf8, 0xf0, 4, 0x10000}};
constexpr char32_t largest = 0x10ffff;
constexpr int bits_of_a_byte = 6;  // of those after the first, which begin with 10

bool surrogate(char32_t code) { return code >= 0xd800 && code < 0xe000; }

}  // namespace

Utf8Character utf8_character(std::string_view text, std::size_t at) {
  const auto first = static_cast<std::uint8_t>(text[at]);
  for (const Form& form : forms) {
    if ((first & form.mask) != form.lead) continue;
    if (form.bytes > text.size() - at) return {};
    char32_t code = first & ~form.mask & 0xff;
    for (std::size_t k = 1; k < form.bytes; ++k) {
      const auto byte = static_cast<std::uint8_t>(text[at + k]);
      if ((byte & 0xc0) != 0x80) return {};
      code = code << bits_of_a_byte | (byte & 0x3f);
    }
    if (code < form.smallest || code > largest || surrogate(code)) return {};
    return {code, form.bytes};
  }
  return {};
}

std::string utf8_bytes(char32_t code) {
  for (const Form& form : forms) {
    const auto after = static_cast<int>(form.bytes - 1) * bits_of_a_byte;
    const char32_t largest_first = static_cast<char32_t>(~form.mask & 0xff);
    if (code >> after > largest_first) continue;
    std::string y{static_cast<char>(form.lead | code >> after)};
    for (int shift = after - bits_of_a_byte; shift >= 0; shift -= bits_of_a_byte) {
      y += static_cast<char>(0x80 | (code >> shift & 0x3f));
    }
    return y;
  }
  return {};
}

std::size_t character_bytes(std::string_view text) { return utf8_character(text, 0).bytes; }

bool valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    const std::string_view next = text.substr(0, bytes == 0 ? 1 : bytes);
    if (bytes > 0 && !is_control(next)) {
      shown += next;
    } else {
      for (std::size_t k = 0; k < next.size(); ++k)
        shown += fmt::format("\\x{:02x}", byte_at(next, k));
    }
    text.remove_prefix(next.size());
  }
  return shown;
}

std::string excerpt(std::string_view text, std::size_t max) {
  if (text.size() <= max) return printable(text);
  return fmt::format("{}... ({} bytes)", printable(text.substr(0, max)), text.size());
}

}  // namespace sotto
