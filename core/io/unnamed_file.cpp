#include "core/io/unnamed_file.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/error.h"
#include "core/io/atomic_file.h"

namespace sotto {

namespace {

constexpr unsigned owner_alone = 0600;

[[noreturn]] void fail_with_errno(const std::string& folder) {
  throw SystemFailure(
      fmt::format("unnamed file: in the folder {}: {}", folder, std::strerror(errno)));
}

// For file systems that make no files without names.
Descriptor named_then_unlinked(const std::string& folder) {
  static std::atomic<std::uint64_t> serial{0};
  Descriptor file;
  std::string name;
  do {
    name = fmt::format("{}/sotto.{}.{}.tmp", folder, ::getpid(), serial++);
    file = open_file(name, O_RDWR | O_CREAT | O_EXCL, owner_alone);
  } while (!file.is_open() && errno == EEXIST);
  if (file.is_open()) ::unlink(name.c_str());
  return file;
}

}  // namespace

UnnamedFile::UnnamedFile(const std::string& folder)
    : folder_(folder), file_(open_file(folder, O_RDWR | O_TMPFILE, owner_alone)) {
  if (!file_.is_open() && (errno == EOPNOTSUPP || errno == EISDIR)) {
    file_ = named_then_unlinked(folder);
  }
  if (!file_.is_open()) fail_with_errno(folder);
}

void UnnamedFile::append(std::span<const std::byte> bytes) {
  FileWriter(file_.number(), folder_).write(bytes);
  size_ += bytes.size();
}

std::shared_ptr<void> UnnamedFile::map() const {
  void* const address = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
                               file_.number(), 0);
  if (address == MAP_FAILED) fail_with_errno(folder_);
  // Rows are drawn at random: reading ahead of each would read many times as much.
  ::madvise(address, size_, MADV_RANDOM);
  return {address, [bytes = size_](void* mapped) { ::munmap(mapped, bytes); }};
}

void read_ahead(std::span<const std::byte> bytes) {
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t first = begin / page * page;
  // A hint: whatever goes wrong shows when the bytes are used.
  ::madvise(reinterpret_cast<void*>(first), begin + bytes.size() - first, MADV_WILLNEED);
}

}  // namespace sotto
