// A path's place: where it leads, and what is there. Both must be known before a file is replaced.
#pragma once

#include <string>

#include "core/io/open_file.h"

namespace sotto {

// The kind of contents that must not be lost. A file's first bytes decide it, and not its name.
enum class FileKind {
  other,
  ledger,   // of any version
  tensors,  // safetensors: a checkpoint or a model
};

// `other` also when there is no file. Throws SystemFailure when it cannot be read.
FileKind file_kind(const std::string& path);

// How a file can be written.
struct FilePlace {
  std::string path;       // with the symbolic links of its last part resolved
  bool replaced = false;  // a regular file, or none yet: written beside and put in its place
  int descriptor = -1;    // not negative: a file that is open already, named as /dev/fd/N
};

// Throws SystemFailure for links that lead nowhere, and for what is neither a regular file nor a
// character device nor an open file of this process: folders, FIFOs, sockets, disks.
FilePlace file_place(const std::string& path);
// Opens a place that is not replaced, to write. Throws SystemFailure when that is not allowed.
Descriptor open_place(const FilePlace& place);

// Opens a file to read: a regular one, or whatever /dev/fd/N names. Throws SystemFailure for
// others: a FIFO may keep its reader waiting, and a device never end.
Descriptor open_to_read(const std::string& path);

}  // namespace sotto
