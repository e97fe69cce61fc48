#include "nn/data/text/utf8_text.h"

#include <cstdint>
#include <span>

#include "core/io/utf8.h"
#include "nn/data/expect.h"
#include "nn/data/file_kind.h"

namespace sotto {

namespace {

std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

}  // namespace

void expect_utf8(std::string_view text, const std::string& name) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = utf8_character(text, at).bytes;
    expect(bytes > 0, "text: {}: byte 0x{:02x} at offset {} is not UTF-8{}", name,
           static_cast<std::uint8_t>(text[at]), at, looks_like(bytes_of(text)));
    at += bytes;
  }
  // Without its mark it is UTF-8 with zero bytes.
  expect(text.find('\0') == text.npos || file_kind(bytes_of(text)).empty(), "text: {}: not UTF-8{}",
         name, looks_like(bytes_of(text)));
}

}  // namespace sotto
