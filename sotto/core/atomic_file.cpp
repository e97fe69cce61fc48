#include "sotto/core/atomic_file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sotto/core/error.h"

namespace sotto {

namespace {

[[noreturn]] void fail_with_errno(const char* op, const std::string& path) {
  throw SystemFailure(fmt::format("{}: {}: {}", op, path, std::strerror(errno)));
}

// A file that is open as long as this object lives.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number() const { return number_; }
  bool close() { return number_ < 0 || ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_;
};

// Removes the file unless it was renamed.
struct Temporary {
  std::string path;
  bool renamed = false;

  ~Temporary() {
    if (!renamed) ::unlink(path.c_str());
  }
};

// Creates a new file beside `path` and puts its name into `made`.
int create_beside(const std::string& path, std::string& made) {
  static std::atomic<std::uint64_t> serial{0};
  int number = -1;
  do {
    made = fmt::format("{}.{}.{}.tmp", path, ::getpid(), serial++);
    number = ::open(made.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (number < 0 && (errno == EEXIST || errno == EINTR));
  if (number < 0) fail_with_errno("write", path);
  return number;
}

void keep_permissions(const std::string& path, int descriptor) {
  struct stat old {};
  if (::stat(path.c_str(), &old) != 0) return;
  constexpr mode_t permissions = 07777;
  if (::fchmod(descriptor, old.st_mode & permissions) != 0) fail_with_errno("write", path);
}

// Brings the rename itself to the disk.
void sync_folder_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const std::string folder = parent.empty() ? "." : parent;
  const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.number() < 0) fail_with_errno("write", folder);
  // Some file systems cannot do this for a folder and say EINVAL.
  if (::fsync(opened.number()) != 0 && errno != EINVAL) fail_with_errno("write", folder);
}

}  // namespace

void FileWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      fail_with_errno("write", path_);
    }
  }
}

void write_file_atomically(const std::string& path, const std::function<void(FileWriter&)>& body) {
  std::string made;
  Descriptor file(create_beside(path, made));
  Temporary temporary{made};
  keep_permissions(path, file.number());
  FileWriter writer(file.number(), path);
  body(writer);
  if (::fsync(file.number()) != 0 || !file.close()) fail_with_errno("write", path);
  if (::rename(made.c_str(), path.c_str()) != 0) fail_with_errno("write", path);
  temporary.renamed = true;
  sync_folder_of(path);
}

std::string read_file(const std::string& path, std::size_t limit) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (file.number() < 0 || ::fstat(file.number(), &status) != 0) fail_with_errno("read", path);
  std::string text;
  // One byte more than the size, so that the end is met without growing; pipes tell no size.
  constexpr std::size_t least = 4096;
  std::size_t room = std::max(least, static_cast<std::size_t>(status.st_size) + 1);
  for (std::size_t size = 0;; room = 2 * size) {
    if (size > limit) {
      throw SystemFailure(fmt::format("read: {}: larger than {} bytes", path, limit));
    }
    if (size == text.size()) text.resize(std::min(room, limit) + (room > limit ? 1 : 0));
    const ssize_t got = ::read(file.number(), text.data() + size, text.size() - size);
    if (got < 0 && errno != EINTR) fail_with_errno("read", path);
    if (got == 0) {
      text.resize(size);
      return text;
    }
    size += got > 0 ? static_cast<std::size_t>(got) : 0;
  }
}

}  // namespace sotto
