// Locks of the kernel on files: a process that dies leaves none.
#pragma once

#include <memory>
#include <string>

#include <fcntl.h>

namespace sotto {

// The argument of fcntl(2) for a lock on `length` bytes (0: all that follow), which need not exist.
// Take it with F_OFD_SETLK: it then belongs to the open file and not to the process, so that two
// owners in one process exclude each other, too.
struct flock lock_on(short type, off_t begin, off_t length = 1);

// Locks a name, such as that of a model, for one owner: as long as the returned pointer lives,
// nobody else gets the lock, in this process or another. Null: somebody has it. The lock is on the
// file PATH.lock beside the file to which symbolic links lead; it is removed at the end if it is
// empty. A process that dies leaves the file, which locks nothing. Throws SystemFailure if the file
// cannot be made or locked, and for a device or a pipe.
std::shared_ptr<const void> lock_name(const std::string& path);

}  // namespace sotto
