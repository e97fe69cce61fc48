// A file's bytes, whether it lies plain or gzip-compressed: the first two bytes tell.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sotto {

// Streams the bytes of `in`, inflating what begins with gzip's signature (RFC 1952; several
// members one after another are one file). Throws SystemFailure, naming the file, where the
// compressed form is damaged: a wrong checksum or length, an early end, bytes after the end.
class GzipReader {
 public:
  // `name` is what messages call the stream, which has to outlive the reader.
  GzipReader(std::istream& in, std::string name);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  // Fills `into` from its start and gives the number of bytes read: fewer than asked only at the
  // end of the data.
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
  std::span<const std::uint8_t> left_;  // of buffer_, not yet used
  std::unique_ptr<Inflater> inflater_;  // none for a plain file
};

}  // namespace sotto
