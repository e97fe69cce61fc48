// A file that is read from its beginning to its end, plain or gzip-compressed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <istream>
#include <memory>
#include <span>
#include <streambuf>
#include <string>
#include <vector>

#include "nn/data/gzip.h"

namespace sotto {

// Opens a file by open_to_read() (core/io/file_place.h), whose descriptor is never that of a
// standard stream. Throws SystemFailure, with the file's name, if it is missing or cannot be read.
class InputFile {
 public:
  explicit InputFile(const std::string& path);

  GzipReader& reader() { return *reader_; }

 private:
  std::unique_ptr<std::streambuf> buffer_;
  std::istream stream_;
  std::unique_ptr<GzipReader> reader_;
};

// The type of the file at a path, or file_type::not_found. Throws SystemFailure, with the path, if
// the system fails, as for a loop of links.
std::filesystem::file_type file_type_at(const std::filesystem::path& path);

// Reads to the end of the data. Memory grows with the bytes present. Throws SystemFailure, with the
// name and the limit, for more than `max` bytes.
std::vector<std::uint8_t> read_all(GzipReader& in, std::size_t max);

// The bytes of a file as they are, compressed or not. Throws SystemFailure, with the file's name,
// if it cannot be read or has more than `max` bytes.
std::vector<std::uint8_t> read_bytes(const std::string& path, std::size_t max);

}  // namespace sotto
