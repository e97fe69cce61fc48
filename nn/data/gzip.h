// Reads a file's bytes, plain or gzip-compressed; the first two bytes tell which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sotto {

// Streams the bytes of `in`, and inflates them if they begin with gzip's signature (RFC 1952;
// several members in succession are one file). Throws SystemFailure, with the file's name, for
// damaged compressed data: a wrong checksum or length, an early end, or bytes after the end.
class GzipReader {
 public:
  // `name` is the stream's name in messages; the stream must outlive the reader.
  GzipReader(std::istream& in, std::string name);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  // Fills `into` from its start and returns the number of bytes read; less than its size only at
  // the end of the data.
  std::size_t read(std::span<std::uint8_t> into);
  const std::string& name() const { return name_; }

 private:
  struct Inflater;

  bool refill();
  std::size_t take_plain(std::span<std::uint8_t> into);
  std::size_t take_inflated(std::span<std::uint8_t> into);

  std::istream& in_;
  std::string name_;
  std::vector<std::uint8_t> buffer_;
  std::span<const std::uint8_t> left_;  // the bytes of buffer_ that are not used yet
  std::unique_ptr<Inflater> inflater_;  // null for a plain file
};

}  // namespace sotto
