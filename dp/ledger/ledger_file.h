// The file of a ledger: append-only, and shared with other ledgers by locks.
#pragma once

#include <cstddef>
#include <string>

#include "core/io/open_file.h"

namespace sotto {

// An open append-only file, or none (a ledger in memory).
class LedgerFile {
 public:
  class Lock;

  LedgerFile() = default;
  // Opens the file; `flags` are those of open(2) besides read, write and append. Throws
  // SystemFailure when the file cannot be opened or is not a regular file.
  LedgerFile(const std::string& path, int flags);

  bool exists() const { return file_.is_open(); }
  const std::string& path() const { return path_; }  // absolute
  // Waits while another ledger holds the lock. Does nothing without a file. Throws SystemFailure
  // when the file cannot be locked.
  Lock lock() const;
  // Prevents other ledgers from continuing the run, whose name is 128 bits in hexadecimal, while
  // this file is open. Throws SystemFailure when another ledger already continues it.
  void claim_run(const std::string& run) const;
  // Returns whether other ledgers hold runs of the file, in this process or another.
  bool has_other_runs() const;
  // Throws SystemFailure unless the path still names this file.
  void check_in_place() const;
  // The bytes from `begin` to the end; empty when the file is shorter.
  std::string read(std::size_t begin) const;
  void truncate(std::size_t size);
  // Returns when the bytes are on the disk. Throws SystemFailure when they cannot be written.
  void append(const std::string& text);
  // Returns when everything that was ever appended is on the disk.
  void sync() const;
  // Makes the file's name durable, too.
  void sync_folder() const;

 private:
  std::string path_;
  Descriptor file_;
};

// Excludes other ledgers from reading and appending while it lives.
class LedgerFile::Lock {
 public:
  ~Lock();
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  friend class LedgerFile;
  explicit Lock(const LedgerFile& file);
  int descriptor_;
};

}  // namespace sotto
