// The file under a ledger: locked, read once, then only appended to.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

namespace sotto {

// An open, locked file that is only ever appended to; or none.
class LedgerFile {
 public:
  LedgerFile() = default;
  // `flags` of open(2) besides read, write and append. Throws SystemFailure when the file cannot be
  // opened, is not a regular file or is held by another ledger.
  LedgerFile(std::string path, int flags);
  ~LedgerFile();
  LedgerFile(LedgerFile&& other) noexcept
      : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}
  LedgerFile& operator=(LedgerFile&& other) noexcept;

  bool exists() const { return descriptor_ >= 0; }
  const std::string& path() const { return path_; }
  std::string read() const;
  void truncate(std::size_t size);
  // Returns when the bytes are on the disk. Throws SystemFailure.
  void append(const std::string& text);
  // Makes the file's name durable too.
  void sync_folder() const;

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace sotto
