// Atomic writes: after a failure or a crash a file has either its old or its new contents,
// complete.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "core/io/file_place.h"

namespace sotto {

// Receives the bytes that write_file_atomically's caller writes; each call is a system call.
class FileWriter {
 public:
  // Writes to an open descriptor; the path is for errors.
  FileWriter(int descriptor, const std::string& path) : descriptor_(descriptor), path_(path) {}
  // Throws SystemFailure unless all bytes were written. Waits for a slow reader.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

 private:
  int descriptor_;
  const std::string& path_;
};

// The readers of a new file. `owner`: mode 0600 from the start, whatever the mode of a replaced
// file.
enum class Readers { as_usual, owner };

// Replaces `path` atomically: `body` writes a temporary file next to it, which is synced and
// renamed. The new file keeps the permissions of the old one; a symbolic link stays, and its target
// is replaced. On any failure, exceptions of `body` included, the temporary file is removed and the
// old file is unchanged. A character device and a file that is already open (/dev/fd/N) are written
// directly.
// Throws SystemFailure with the path and the reason; also for FIFOs, sockets, folders and disks,
// for every ledger, and for a safetensors file unless `kind` is `tensors`: such files are never
// overwritten.
void write_file_atomically(const std::string& path, const std::function<void(FileWriter&)>& body,
                           FileKind kind = FileKind::other, Readers readers = Readers::as_usual);
// Writes a new file, as whole and as durable, for its owner alone, and replaces none: of `path`,
// `path`.2, `path`.3 and so on it takes the first name that is free, and returns it. Throws
// SystemFailure with the path and the reason.
std::string write_new_file(const std::string& path, std::string_view text);
// Throws as write_file_atomically would before it calls `body`; leaves no file.
void check_can_write(const std::string& path, FileKind kind = FileKind::other);
// Removes temporary files that dead processes left when they replaced `path` or a file whose name
// begins with `path` and a dot. Ignores failures.
void remove_leftovers(const std::string& path);

// The contents of a file. Throws SystemFailure if it cannot be read, has more than `limit` bytes,
// or is a FIFO or a device; /dev/fd/N may name a pipe.
std::string read_file(const std::string& path,
                      std::size_t limit = std::numeric_limits<std::size_t>::max());

}  // namespace sotto
