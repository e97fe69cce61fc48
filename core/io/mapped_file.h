// A file in memory, read when it is used.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace sotto {

// A private mapping of a file: written pages are copies, and the file does not change.
class MappedFile {
 public:
  // Throws SystemFailure, with the path, if the file cannot be read or is a FIFO or a device.
  explicit MappedFile(const std::string& path);
  // A file whose bytes are in memory already.
  MappedFile(std::shared_ptr<void> block, std::size_t bytes);

  std::span<const std::byte> bytes() const { return bytes_; }
  // The bytes from an offset on. The pointer keeps the mapping.
  std::shared_ptr<void> at(std::size_t offset) const;

 private:
  std::shared_ptr<void> block_;
  std::span<const std::byte> bytes_;
};

}  // namespace sotto
