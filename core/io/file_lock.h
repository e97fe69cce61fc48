// Locks of the kernel on files: a process that dies leaves none.
#pragma once

#include <memory>
#include <string>

#include <fcntl.h>

namespace sotto {

// The argument of fcntl(2) for a lock on `length` bytes (0: up to the end), which need not exist.
// Lock with F_OFD_SETLK: the lock then belongs to the open file and not to the process, so that two
// owners in one process exclude each other.
struct flock lock_on(short type, off_t begin, off_t length = 1);

// Locks a name, such as that of a model, for one owner: as long as the returned pointer lives, no
// other call gets the lock, in this process or another. Returns null if the name is locked. The
// lock is on the file PATH.lock, beside the file that symbolic links resolve to; the file is
// removed at the end if it is empty. If the process dies, the file stays but locks nothing. Throws
// SystemFailure if the file cannot be made or locked, and for a device or a pipe.
std::shared_ptr<const void> lock_name(const std::string& path);

}  // namespace sotto
