// Reads the bytes of a file one after the other, and refuses to read beyond their end.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "core/io/file_context.h"

namespace sotto::weights {

// Throws std::invalid_argument, beginning with the context, where the bytes end too early.
class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, FileContext context)
      : bytes_(bytes), context_(std::move(context)) {}

  // A number of little-endian bytes.
  template <class T>
  T number() {
    static_assert(std::endian::native == std::endian::little);
    T value;
    std::memcpy(&value, text(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view text(std::uint64_t count) {
    context_.check(count <= left(), "{} bytes from byte {} on, where there are {}", count, place_,
                   left());
    const auto* const first = reinterpret_cast<const char*>(bytes_.data()) + place_;
    place_ += count;
    return {first, count};
  }

  std::size_t place() const { return place_; }  // bytes read so far
  std::size_t left() const { return bytes_.size() - place_; }
  const FileContext& context() const { return context_; }

 private:
  std::span<const std::byte> bytes_;
  FileContext context_;
  std::size_t place_ = 0;
};

}  // namespace sotto::weights
