#include "core/io/atomic_file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <stdexcept>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"

namespace sotto {

namespace {

[[noreturn]] void fail_with_errno(const char* op, const std::string& path) {
  throw SystemFailure(fmt::format("{}: {}: {}", op, path, std::strerror(errno)));
}

// A temporary file, removed by the destructor unless it was renamed.
struct Temporary {
  std::string path;
  bool renamed = false;

  ~Temporary() {
    if (!renamed) ::unlink(path.c_str());
  }
};

// Creates a new file next to `path` and stores its name in `made`.
Descriptor create_beside(const std::string& path, std::string& made,
                         Readers readers = Readers::as_usual) {
  static std::atomic<std::uint64_t> serial{0};
  const unsigned permissions = readers == Readers::owner ? 0600 : 0666;
  Descriptor file;
  do {
    made = fmt::format("{}.{}.{}.tmp", path, ::getpid(), serial++);
    file = open_file(made, O_WRONLY | O_CREAT | O_EXCL, permissions);
  } while (!file.is_open() && (errno == EEXIST || errno == EINTR));
  if (!file.is_open()) fail_with_errno("write", path);
  return file;
}

void keep_permissions(const std::string& path, int descriptor) {
  struct stat old {};
  if (::stat(path.c_str(), &old) != 0) return;
  constexpr mode_t permissions = 07777;
  if (::fchmod(descriptor, old.st_mode & permissions) != 0) fail_with_errno("write", path);
}

// Syncs the folder of `path`, so that a rename in it survives a power failure.
void sync_folder_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const std::string folder = parent.empty() ? "." : parent;
  const Descriptor opened = open_file(folder, O_RDONLY | O_DIRECTORY);
  if (!opened.is_open()) fail_with_errno("write", folder);
  // Some file systems cannot sync a folder and return EINVAL.
  if (::fsync(opened.number()) != 0 && errno != EINVAL) fail_with_errno("write", folder);
}

void check_replaceable(const std::string& path, FileKind kind) {
  const FileKind there = file_kind(path);
  if (there == FileKind::other || (there == FileKind::tensors && kind == there)) return;
  throw SystemFailure(
      fmt::format("write: {}: is {} and must not be overwritten", path,
                  there == FileKind::ledger ? "a ledger" : "a checkpoint or model"));
}

void write_straight(const FilePlace& place, const std::function<void(FileWriter&)>& body) {
  const Descriptor file = open_place(place);
  FileWriter writer(file.number(), place.path);
  body(writer);
}

// Removes the last dot and the text behind it from `name`. Returns that text as a number; nullopt
// if it is none.
std::optional<std::uint64_t> take_number(std::string_view& name) {
  const std::size_t dot = name.rfind('.');
  if (dot == name.npos) return std::nullopt;
  const char* const end = name.data() + name.size();
  std::uint64_t number = 0;
  const auto [last, error] = std::from_chars(name.data() + dot + 1, end, number);
  name = name.substr(0, dot);
  return error == std::errc() && last == end ? std::optional(number) : std::nullopt;
}

// True if `name` is NAME.PROCESS.SERIAL.tmp, the process no longer runs, and NAME is `of` or begins
// with `of` and a dot.
bool left_over(std::string_view name, const std::string& of) {
  constexpr std::string_view ending = ".tmp";
  if (!name.ends_with(ending)) return false;
  name.remove_suffix(ending.size());
  const auto serial = take_number(name), process = take_number(name);
  if (!serial || !process || *process == 0 || *process > std::numeric_limits<pid_t>::max())
    return false;
  if (name != of && !name.starts_with(of + '.')) return false;
  return ::kill(static_cast<pid_t>(*process), 0) != 0 && errno == ESRCH;
}

}  // namespace

void FileWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    } else if (errno ==
               EAGAIN) {  // the descriptor may have been opened non-blocking by another program
      pollfd ready{.fd = descriptor_, .events = POLLOUT, .revents = 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      fail_with_errno("write", path_);
    }
  }
}

void write_file_atomically(const std::string& path, const std::function<void(FileWriter&)>& body,
                           FileKind kind, Readers readers) {
  const FilePlace place = file_place(path);
  if (!place.replaced) return write_straight(place, body);
  check_replaceable(place.path, kind);
  std::string made;
  Descriptor file = create_beside(place.path, made, readers);
  Temporary temporary{made};
  if (readers == Readers::as_usual) keep_permissions(place.path, file.number());
  FileWriter writer(file.number(), path);
  body(writer);
  if (::fsync(file.number()) != 0 || !file.close()) fail_with_errno("write", path);
  if (::rename(made.c_str(), place.path.c_str()) != 0) fail_with_errno("write", path);
  temporary.renamed = true;
  sync_folder_of(place.path);
}

// A link is refused where there is a name, which a rename would replace.
std::string write_new_file(const std::string& path, std::string_view text) {
  std::string made;
  Descriptor file = create_beside(path, made, Readers::owner);
  const Temporary temporary{made};
  FileWriter(file.number(), path).write(text);
  if (::fsync(file.number()) != 0 || !file.close()) fail_with_errno("write", path);
  std::string name = path;
  for (int number = 2; ::link(made.c_str(), name.c_str()) != 0; ++number) {
    if (errno != EEXIST) fail_with_errno("write", name);
    name = fmt::format("{}.{}", path, number);
  }
  sync_folder_of(path);
  return name;
}

void check_can_write(const std::string& path, FileKind kind) {
  const FilePlace place = file_place(path);
  if (!place.replaced) {
    open_place(place);
    return;
  }
  check_replaceable(place.path, kind);
  std::string made;
  create_beside(place.path, made);
  const Temporary temporary{made};
}

void remove_leftovers(const std::string& path) try {
  namespace fs = std::filesystem;
  const fs::path place = fs::absolute(file_place(path).path);
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(place.parent_path())) {
    if (left_over(entry.path().filename().string(), place.filename().string()))
      found.push_back(entry.path());
  }
  for (const fs::path& file : found) ::unlink(file.c_str());
} catch (const std::runtime_error&) {
  // Leftover files only cost disk space.
}

std::string read_file(const std::string& path, std::size_t limit) {
  const Descriptor file = open_to_read(path);
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) fail_with_errno("read", path);
  std::string text;
  // One byte more than the size, so that the end of the file is found without growing; pipes have
  // no size.
  constexpr std::size_t min = 4096;
  std::size_t room = std::max(min, static_cast<std::size_t>(status.st_size) + 1);
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
