// Reads a file's bytes, plain or gzip-compressed; recognized by the first two bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <memory>
#include <span>
#include <string>

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
  const std::string& name() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sotto
