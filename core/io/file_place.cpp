#include "core/io/file_place.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "core/error.h"

namespace sotto {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view ledger_beginning = "{\"sotto_ledger\":";

[[noreturn]] void fail_on(const char* op, const std::string& path, const std::string& reason) {
  throw SystemFailure(fmt::format("{}: {}: {}", op, path, reason));
}
[[noreturn]] void fail_with_errno(const char* op, const std::string& path) {
  fail_on(op, path, std::strerror(errno));
}

std::string folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// The descriptor that `path` names if it is in /proc/self/fd, where links do not contain paths.
std::optional<int> open_number(const char* op, const std::string& path) {
  const std::string folder = folder_of(path);
  struct statfs system {};
  if (::statfs(folder.c_str(), &system) != 0 || system.f_type != PROC_SUPER_MAGIC)
    return std::nullopt;
  const std::string name = fs::path(path).filename().string();
  int number = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  std::error_code none;
  const bool ours =
      error == std::errc() && *end == '\0' && fs::equivalent(folder, "/proc/self/fd", none);
  if (!ours) fail_on(op, path, "not an open file of this process");
  return number;
}

const char* kind_name(mode_t mode) {
  if (S_ISDIR(mode)) return "Is a directory";
  if (S_ISFIFO(mode)) return "a FIFO, which could block the program; /dev/fd/N may name a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISBLK(mode)) return "a block device";
  return "a character device";
}

// Resolves the symbolic links of the path's last component like the kernel; the kernel itself
// resolves those of the folders.
FilePlace followed(const char* op, const std::string& path) {
  constexpr int max_links = 40;  // the kernel's limit
  std::string at = path;
  for (int links = 0; links <= max_links; ++links) {
    struct stat status {};
    if (::lstat(at.c_str(), &status) != 0) {
      if (errno != ENOENT) fail_with_errno(op, path);
      return {at, true, -1};
    }
    if (!S_ISLNK(status.st_mode)) return {at, S_ISREG(status.st_mode), -1};
    if (const std::optional<int> number = open_number(op, at)) return {at, false, *number};
    std::error_code error;
    const fs::path next = fs::read_symlink(at, error);
    if (error) fail_on(op, path, error.message());
    at = (fs::path(at).parent_path() / next).string();
  }
  fail_on(op, path, std::strerror(ELOOP));
}

}  // namespace

FileKind file_kind(const std::string& path) {
  const Descriptor file = open_file(path, O_RDONLY | O_NONBLOCK);
  if (!file.is_open() && errno == ENOENT) return FileKind::other;
  std::array<char, 16> bytes{};
  static_assert(ledger_beginning.size() <= sizeof bytes);
  const ssize_t got = file.is_open() ? ::read(file.number(), bytes.data(), bytes.size()) : -1;
  if (got < 0) fail_with_errno("read", path);
  const std::string_view text(bytes.data(), static_cast<std::size_t>(got));
  if (text.starts_with(ledger_beginning)) return FileKind::ledger;
  // A safetensors file begins with the header's length, little-endian, and a brace. Eight letters
  // of a text would be a larger number than any header length.
  constexpr std::size_t length_bytes = 8;
  constexpr std::uint64_t max_header_bytes = std::uint64_t{1} << 32;
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), length_bytes);
  const bool tensors =
      text.size() > length_bytes && text[length_bytes] == '{' && length < max_header_bytes;
  return tensors ? FileKind::tensors : FileKind::other;
}

FilePlace file_place(const std::string& path) {
  FilePlace place = followed("write", path);
  struct stat status {};
  if (place.replaced || place.descriptor >= 0) return place;
  if (::stat(place.path.c_str(), &status) != 0) fail_with_errno("write", path);
  if (!S_ISCHR(status.st_mode)) fail_on("write", path, kind_name(status.st_mode));
  return place;
}

Descriptor open_place(const FilePlace& place) {
  Descriptor file = place.descriptor >= 0 ? same_file(place.descriptor)
                                          : open_file(place.path, O_WRONLY | O_NOCTTY);
  if (!file.is_open()) fail_with_errno("write", place.path);
  const int flags = ::fcntl(file.number(), F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY || (flags & O_PATH) != 0)
    fail_on("write", place.path, "open, but not for writing");
  return file;
}

Descriptor open_to_read(const std::string& path) {
  const FilePlace place = followed("read", path);
  Descriptor file = place.descriptor >= 0 ? same_file(place.descriptor)
                                          : open_file(place.path, O_RDONLY | O_NONBLOCK);
  struct stat status {};
  if (!file.is_open() || ::fstat(file.number(), &status) != 0) fail_with_errno("read", path);
  if (place.descriptor < 0 && !S_ISREG(status.st_mode))
    fail_on("read", path, kind_name(status.st_mode));
  return file;
}

}  // namespace sotto
