#include "nn/data/tokenizer/byte_characters.h"

#include <array>

#include "core/io/utf8.h"
#include "nn/data/tokenizer/characters.h"

namespace sotto {

namespace {

constexpr int byte_count = 256;
constexpr char32_t first_other = 0x100;

struct Table {
  std::array<std::string, byte_count> characters;
  std::array<int, 2 * byte_count> bytes;  // by code; -1: none

  Table() {
    bytes.fill(-1);
    char32_t other = first_other;
    for (int byte = 0; byte < byte_count; ++byte) {
      const bool visible = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
      const char32_t code = visible ? static_cast<char32_t>(byte) : other++;
      characters[static_cast<std::size_t>(byte)] = utf8_bytes(code);
      bytes[code] = byte;
    }
  }
};

const Table& table() {
  static const Table table;
  return table;
}

// The bytes at the beginning of a text that could begin a character; at least 1.
std::size_t maximal_part(std::string_view text) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned first = byte(0);
  // Length and the range of the second byte, by the first (Unicode 15, table 3-7).
  const std::size_t length = first < 0xc2 || first > 0xf4 ? 1
                             : first < 0xe0               ? 2
                             : first < 0xf0               ? 3
                                                          : 4;
  const unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  std::size_t at = 1;
  if (at < length && at < text.size() && byte(at) >= low && byte(at) <= high) {
    ++at;
    while (at < length && at < text.size() && byte(at) >= 0x80 && byte(at) <= 0xbf) ++at;
  }
  return at;
}

}  // namespace

std::string byte_characters(std::string_view bytes) {
  std::string y;
  y.reserve(bytes.size() + bytes.size() / 2);
  for (const char byte : bytes) y += table().characters[static_cast<unsigned char>(byte)];
  return y;
}

std::optional<std::string> bytes_of_characters(std::string_view characters) {
  std::string y;
  bool all = true;
  for_each_character(characters, [&](char32_t code, std::string_view) {
    const int byte = code < table().bytes.size() ? table().bytes[code] : -1;
    all = all && byte >= 0;
    y += static_cast<char>(byte);
  });
  return all ? std::optional(y) : std::nullopt;
}

std::string replace_invalid(std::string_view bytes) {
  std::string y;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t valid = character_bytes(bytes.substr(at));
    if (valid > 0) {
      y += bytes.substr(at, valid);
      at += valid;
    } else {
      y += "\uFFFD";
      at += maximal_part(bytes.substr(at));
    }
  }
  return y;
}

}  // namespace sotto
