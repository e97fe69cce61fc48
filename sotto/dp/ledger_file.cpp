#include "sotto/dp/ledger_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sotto/core/error.h"

namespace sotto {

namespace {

[[noreturn]] void fail_on(const std::string& path, const char* what) {
  throw SystemFailure(fmt::format("ledger: {}: {}: {}", what, path, std::strerror(errno)));
}

}  // namespace

LedgerFile::LedgerFile(std::string path, int flags) : path_(std::move(path)) {
  constexpr int permissions = 0600;
  descriptor_ = ::open(path_.c_str(), flags | O_RDWR | O_APPEND | O_CLOEXEC, permissions);
  if (descriptor_ < 0) fail_on(path_, "cannot open");
  try {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0) fail_on(path_, "cannot read");
    if (!S_ISREG(status.st_mode)) {
      throw SystemFailure(fmt::format("ledger: not a regular file: {}", path_));
    }
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) fail_on(path_, "held by another ledger");
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

LedgerFile::~LedgerFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

LedgerFile& LedgerFile::operator=(LedgerFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

std::string LedgerFile::read() const {
  constexpr std::size_t piece = 1 << 16;
  std::string text;
  while (true) {
    const std::size_t size = text.size();
    text.resize(size + piece);
    const ssize_t got = ::pread(descriptor_, text.data() + size, piece, static_cast<off_t>(size));
    if (got < 0 && errno != EINTR) fail_on(path_, "cannot read");
    text.resize(size + static_cast<std::size_t>(got > 0 ? got : 0));
    if (got == 0) return text;
  }
}

void LedgerFile::truncate(std::size_t size) {
  if (::ftruncate(descriptor_, static_cast<off_t>(size)) != 0 || ::fdatasync(descriptor_) != 0) {
    fail_on(path_, "cannot truncate");
  }
}

void LedgerFile::append(const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(descriptor_, text.data() + done, text.size() - done);
    if (wrote < 0 && errno != EINTR) fail_on(path_, "cannot append");
    if (wrote > 0) done += static_cast<std::size_t>(wrote);
  }
  if (::fdatasync(descriptor_) != 0) fail_on(path_, "cannot sync");
}

void LedgerFile::sync_folder() const {
  const std::filesystem::path folder = std::filesystem::absolute(path_).parent_path();
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail_on(folder, "cannot open");
  const bool synced = ::fsync(descriptor) == 0;
  const int reason = errno;
  ::close(descriptor);
  errno = reason;
  if (!synced && errno != EINVAL) fail_on(folder, "cannot sync");  // EINVAL: no such notion here
}

}  // namespace sotto
