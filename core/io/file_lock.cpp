#include "core/io/file_lock.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/io/file_place.h"

namespace sotto {

namespace {

// The locked file, removed by the destructor while it is still locked, but not in a fork's copy.
class LockedFile {
 public:
  LockedFile(std::string path, Descriptor file) : path_(std::move(path)), file_(std::move(file)) {}
  ~LockedFile() {
    struct stat status {};
    const bool ours = process_ == ::getpid() && ::fstat(file_.number(), &status) == 0;
    if (ours && status.st_size == 0 && in_place()) ::unlink(path_.c_str());
  }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;

  // False if an earlier owner has removed the file since it was opened.
  bool in_place() const {
    struct stat own {
    }, named{};
    return ::fstat(file_.number(), &own) == 0 && ::stat(path_.c_str(), &named) == 0 &&
           own.st_dev == named.st_dev && own.st_ino == named.st_ino;
  }

 private:
  std::string path_;
  Descriptor file_;
  pid_t process_ = ::getpid();
};

[[noreturn]] void fail_with_errno(const std::string& path) {
  throw SystemFailure(fmt::format("lock: {}: {}", path, std::strerror(errno)));
}

}  // namespace

struct flock lock_on(short type, off_t begin, off_t length) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = begin;
  lock.l_len = length;
  return lock;
}

std::shared_ptr<const void> lock_name(const std::string& path) {
  const FilePlace place = file_place(path);
  if (!place.replaced) throw SystemFailure(fmt::format("lock: {}: not a regular file", path));
  const std::string name = std::filesystem::absolute(place.path).string() + ".lock";
  while (true) {
    constexpr unsigned permissions = 0600;
    Descriptor file = open_file(name, O_RDWR | O_CREAT | O_NONBLOCK, permissions);
    if (!file.is_open()) fail_with_errno(name);
    struct flock lock = lock_on(F_WRLCK, 0);
    if (::fcntl(file.number(), F_OFD_SETLK, &lock) != 0) {
      if (errno == EAGAIN || errno == EACCES) return nullptr;
      fail_with_errno(name);
    }
    auto locked = std::make_shared<const LockedFile>(name, std::move(file));
    if (locked->in_place()) return locked;
  }
}

}  // namespace sotto
