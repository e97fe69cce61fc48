// A file without a name, for data that does not fit into memory and that no other process may open.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "core/io/open_file.h"

namespace sotto {

// Holds bytes that are written one after the other and then mapped into memory. The file is
// readable for its owner alone, and its space is free again when the file and its mappings are
// gone, also after a crash.
class UnnamedFile {
 public:
  // Throws SystemFailure, with the folder, if no file can be made there.
  explicit UnnamedFile(const std::string& folder);

  // Throws SystemFailure, with the folder, unless all bytes were written.
  void append(std::span<const std::byte> bytes);
  std::size_t size() const { return size_; }
  // The bytes appended so far, at least one, in memory: read when they are used, and private when
  // they are changed. The mapping outlives the file. Throws SystemFailure.
  std::shared_ptr<void> map() const;

 private:
  std::string folder_;
  Descriptor file_;
  std::size_t size_ = 0;
};

// Asks the system to read the pages of mapped bytes from the disk, and does not wait for them.
void read_ahead(std::span<const std::byte> bytes);

}  // namespace sotto
