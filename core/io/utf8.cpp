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

}  // namespace

// RFC 3629, section 4: the second byte tells whether a character has more bytes than it needs, is a
// UTF-16 surrogate, or is beyond the last character.
std::size_t character_bytes(std::string_view text) {
  const unsigned first = byte_at(text, 0);
  if (first < 0x80) return 1;
  const std::size_t bytes = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return 0;
  for (std::size_t k = 1; k < bytes; ++k) {
    if ((byte_at(text, k) & 0xc0U) != 0x80) return 0;
  }
  const unsigned second = byte_at(text, 1);
  const bool sound = (first != 0xe0 || second >= 0xa0) && (first != 0xed || second < 0xa0) &&
                     (first != 0xf0 || second >= 0x90) && (first != 0xf4 || second < 0x90);
  return sound ? bytes : 0;
}

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

}  // namespace sotto
