// Resolves a path before it is written: the file it leads to, and its present contents.
#pragma once

#include <string>

#include "core/io/open_file.h"

namespace sotto {

// Contents that must not be lost, recognized by the first bytes of a file, not by its name.
enum class FileKind {
  other,
  ledger,   // of any version
  tensors,  // safetensors: a checkpoint or a model
};

// The kind of a file; `other` if it does not exist. Throws SystemFailure if it cannot be read.
FileKind file_kind(const std::string& path);

struct FilePlace {
  std::string path;       // the path, with the symbolic links of its last component resolved
  bool replaced = false;  // true: written to a temporary file, which is then renamed to `path`
  int descriptor = -1;    // >= 0: an open file of this process, named as /dev/fd/N
};

// Resolves a path that is to be written. Throws SystemFailure for a loop of symbolic links, and for
// folders, FIFOs, sockets and disks.
FilePlace file_place(const std::string& path);
// Opens a place with replaced == false for writing. Throws SystemFailure if that is not permitted.
Descriptor open_place(const FilePlace& place);

// Opens a regular file, or the file that /dev/fd/N names, for reading. Throws SystemFailure for a
// FIFO, which could block its reader, and for a device, which may be endless.
Descriptor open_to_read(const std::string& path);

}  // namespace sotto
