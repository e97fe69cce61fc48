#include "core/io/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/mman.h>
#include <sys/stat.h>

#include "core/error.h"
#include "core/io/file_place.h"

namespace sotto {

MappedFile::MappedFile(const std::string& path) {
  const auto check_system = [&](bool ok) {
    if (!ok) throw SystemFailure(fmt::format("read: {}: {}", path, std::strerror(errno)));
  };
  const Descriptor file = open_to_read(path);
  struct stat status {};
  check_system(::fstat(file.number(), &status) == 0);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;
  void* const address =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.number(), 0);
  check_system(address != MAP_FAILED);
  block_ = {address, [size](void* mapped) { ::munmap(mapped, size); }};
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::MappedFile(std::shared_ptr<void> block, std::size_t bytes)
    : block_(std::move(block)), bytes_(static_cast<const std::byte*>(block_.get()), bytes) {}

std::shared_ptr<void> MappedFile::at(std::size_t offset) const {
  return {block_, static_cast<std::byte*>(block_.get()) + offset};
}

}  // namespace sotto
