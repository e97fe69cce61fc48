// Files that are either whole or untouched, whatever happens while they are written.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>

namespace sotto {

// Where write_file_atomically's caller puts the bytes; each call is a system call.
class FileWriter {
 public:
  FileWriter(int descriptor, const std::string& path) : descriptor_(descriptor), path_(path) {}
  // Throws SystemFailure when not everything could be written.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

 private:
  int descriptor_;
  const std::string& path_;
};

// Has `body` write a temporary file beside `path`, brings it to the disk, and puts it in the place
// of `path`, with the permissions of the file that was there (a symbolic link is replaced). When
// anything fails before that, exceptions of `body` included, the temporary file is removed and the
// old file is as it was. Throws SystemFailure with the path and the reason.
void write_file_atomically(const std::string& path, const std::function<void(FileWriter&)>& body);

// The whole file. Throws SystemFailure when it cannot be read or holds more than `limit` bytes.
std::string read_file(const std::string& path,
                      std::size_t limit = std::numeric_limits<std::size_t>::max());

}  // namespace sotto
