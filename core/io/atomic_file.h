// Files that are either whole or untouched, whatever happens while they are written.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "core/io/file_place.h"

namespace sotto {

// Where write_file_atomically's caller puts the bytes; each call is a system call.
class FileWriter {
 public:
  FileWriter(int descriptor, const std::string& path) : descriptor_(descriptor), path_(path) {}
  // Throws SystemFailure when not everything could be written. Waits for a reader that is slow.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

 private:
  int descriptor_;
  const std::string& path_;
};

// Who may read a new file. For its owner alone it has mode 0600 from the beginning, whatever was
// there before.
enum class Readers { as_usual, owner };

// Has `body` write a temporary file beside `path`, brings it to the disk, and puts it in the place
// of `path`, with the permissions of the file that was there; a symbolic link stays, and the file
// that it leads to is replaced. When anything fails before that, exceptions of `body` included, the
// temporary file is removed and the old file is as it was. A character device and what is open
// already (/dev/fd/N) are written as they are. Throws SystemFailure with the path and the reason;
// for FIFOs and what else is no file; and for a file that holds a ledger, or tensors while `kind`
// is another: those are never replaced, whoever wrote them.
void write_file_atomically(const std::string& path, const std::function<void(FileWriter&)>& body,
                           FileKind kind = FileKind::other, Readers readers = Readers::as_usual);
// Throws what write_file_atomically would before it calls its body, and leaves no file.
void check_can_write(const std::string& path, FileKind kind = FileKind::other);
// Removes what processes that are dead now left of files that they were to put in the place of
// `path`, or of another that is named like it with a dot and more. Failures are no matter.
void remove_leftovers(const std::string& path);

// The whole file. Throws SystemFailure when it cannot be read or holds more than `limit` bytes, and
// for a FIFO or a device; /dev/fd/N may name a pipe.
std::string read_file(const std::string& path,
                      std::size_t limit = std::numeric_limits<std::size_t>::max());

}  // namespace sotto
