#include "dp/ledger/ledger_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/io/file_lock.h"

namespace sotto {

namespace {

[[noreturn]] void fail_on(const std::string& path, const char* what) {
  throw SystemFailure(fmt::format("ledger: {}: {}: {}", what, path, std::strerror(errno)));
}

// Locks are on single bytes, which need not exist: the first for appending, and one for each run.
constexpr off_t append_byte = 0;

}  // namespace

LedgerFile::Lock::Lock(const LedgerFile& file) : descriptor_(file.file_.number()) {
  if (descriptor_ < 0) return;
  struct flock lock = lock_on(F_WRLCK, append_byte);
  while (::fcntl(descriptor_, F_OFD_SETLKW, &lock) != 0) {
    if (errno != EINTR) fail_on(file.path_, "cannot lock");
  }
}

LedgerFile::Lock::~Lock() {
  if (descriptor_ < 0) return;
  struct flock lock = lock_on(F_UNLCK, append_byte);
  ::fcntl(descriptor_, F_OFD_SETLK, &lock);
}

LedgerFile::LedgerFile(const std::string& path, int flags)
    : path_(std::filesystem::absolute(path)) {
  constexpr unsigned permissions = 0600;
  file_ = open_file(path_, flags | O_RDWR | O_APPEND, permissions);
  if (!file_.is_open()) fail_on(path_, "cannot open");
  struct stat status {};
  const bool known = ::fstat(file_.number(), &status) == 0;
  if (!known || !S_ISREG(status.st_mode))
    throw SystemFailure(fmt::format("ledger: not a regular file: {}", path_));
}

LedgerFile::Lock LedgerFile::lock() const { return Lock(*this); }

void LedgerFile::claim_run(const std::string& run) const {
  constexpr std::size_t digits = 15;  // 60 bits, for an offset of 63
  constexpr int base = 16;
  const auto byte = static_cast<off_t>(std::stoull(run.substr(0, digits), nullptr, base));
  struct flock lock = lock_on(F_WRLCK, append_byte + 1 + byte);
  if (::fcntl(file_.number(), F_OFD_SETLK, &lock) == 0) return;
  if (errno != EAGAIN && errno != EACCES) fail_on(path_, "cannot lock");
  throw SystemFailure(
      fmt::format("ledger: {}: run {} is being continued by another ledger", path_, run));
}

bool LedgerFile::has_other_runs() const {
  struct flock lock = lock_on(F_WRLCK, append_byte + 1, 0);
  if (::fcntl(file_.number(), F_OFD_GETLK, &lock) != 0) fail_on(path_, "cannot ask for locks");
  return lock.l_type != F_UNLCK;
}

void LedgerFile::check_in_place() const {
  struct stat ours {
  }, named{};
  if (::fstat(file_.number(), &ours) != 0) fail_on(path_, "cannot read");
  if (::stat(path_.c_str(), &named) == 0 && ours.st_dev == named.st_dev &&
      ours.st_ino == named.st_ino)
    return;
  throw SystemFailure(fmt::format("ledger: moved or replaced while it was in use: {}", path_));
}

std::string LedgerFile::read(std::size_t begin) const {
  constexpr std::size_t min = 1 << 10;  // usually no new line, or one of another run
  std::string text;
  while (true) {
    const std::size_t size = text.size(), piece = std::max(min, size);
    text.resize(size + piece);
    const ssize_t got =
        ::pread(file_.number(), text.data() + size, piece, static_cast<off_t>(begin + size));
    if (got < 0 && errno != EINTR) fail_on(path_, "cannot read");
    text.resize(size + static_cast<std::size_t>(got > 0 ? got : 0));
    if (got == 0) return text;
  }
}

void LedgerFile::truncate(std::size_t size) {
  if (::ftruncate(file_.number(), static_cast<off_t>(size)) != 0) fail_on(path_, "cannot truncate");
  sync();
}

void LedgerFile::append(const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(file_.number(), text.data() + done, text.size() - done);
    if (wrote < 0 && errno != EINTR) fail_on(path_, "cannot append");
    if (wrote > 0) done += static_cast<std::size_t>(wrote);
  }
  sync();
}

void LedgerFile::sync() const {
  if (::fdatasync(file_.number()) != 0) fail_on(path_, "cannot sync");
}

void LedgerFile::sync_folder() const {
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  const Descriptor opened = open_file(folder, O_RDONLY | O_DIRECTORY);
  if (!opened.is_open()) fail_on(folder, "cannot open");
  // EINVAL: this file system cannot sync a folder
  if (::fsync(opened.number()) != 0 && errno != EINVAL) fail_on(folder, "cannot sync");
}

}  // namespace sotto
