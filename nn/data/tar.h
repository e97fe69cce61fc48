// Reads the files in a tar archive (POSIX ustar), plain or gzip-compressed, in their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "nn/data/gzip.h"

namespace sotto {

class TarReader {
 public:
  struct Entry {
    std::string name;  // with the folders on the way to it
    std::uint64_t bytes = 0;
  };

  // The reader must outlive this one.
  explicit TarReader(GzipReader& in) : in_(in) {}

  // Moves to the next regular file, past folders, links and descriptions; nullopt at the end, where
  // also the checksum of compressed data was found right. Throws SystemFailure, with the archive's
  // name and the offset, for a header that is none, and where the archive ends early.
  std::optional<Entry> next();
  // The bytes of the present file, once. Memory grows with the bytes that are there. Throws
  // SystemFailure for more than `max` bytes, and where the archive ends early.
  std::string contents(std::size_t max);

 private:
  bool read_header();
  void skip(std::uint64_t bytes);

  GzipReader& in_;
  std::uint64_t at_ = 0;    // bytes read
  std::uint64_t left_ = 0;  // bytes of the present entry, and up to the next header
  std::uint64_t padding_ = 0;
  Entry entry_;
  char type_ = 0;
};

}  // namespace sotto
