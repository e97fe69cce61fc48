#include "core/io/open_file.h"

#include <array>
#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

namespace sotto {

bool Descriptor::close() {
  const int before = errno;
  const bool closed = number_ < 0 || ::close(std::exchange(number_, -1)) == 0;
  if (closed) errno = before;
  return closed;
}

// Unwritable descriptors first take the free numbers up to that of standard error. They stay until
// the file is open, because other threads may print meanwhile, and their text must not reach the
// file.
Descriptor open_file(const std::string& path, int flags, unsigned permissions) {
  std::array<Descriptor, STDERR_FILENO + 1> fillers;
  for (Descriptor& filler : fillers) {
    filler = Descriptor(::open("/", O_PATH | O_CLOEXEC));
    if (!filler.is_open()) return {};
    if (filler.number() > STDERR_FILENO) break;
  }
  Descriptor file(::open(path.c_str(), flags | O_CLOEXEC, permissions));
  if (!file.is_open() || file.number() > STDERR_FILENO) return file;
  errno = EMFILE;  // another thread closed a low number meanwhile
  return {};
}

Descriptor same_file(int number) {
  return Descriptor(::fcntl(number, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

}  // namespace sotto
