#include "nn/data/input_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/stat.h>
#include <unistd.h>

#include "core/io/file_buffer.h"
#include "core/io/file_place.h"
#include "nn/data/expect.h"

namespace sotto {

namespace {

constexpr std::size_t chunk_bytes = std::size_t{1} << 20;

// read(2), again where a signal interrupts it. Returns the number of bytes, 0 at the end.
std::size_t read_some(const Descriptor& file, const std::string& path, std::span<char> into) {
  ssize_t got = 0;
  do {
    got = ::read(file.number(), into.data(), into.size());
  } while (got < 0 && errno == EINTR);
  expect(got >= 0, "read: {}: {}", path, std::strerror(errno));
  return static_cast<std::size_t>(got);
}

}  // namespace

InputFile::InputFile(const std::string& path)
    : buffer_(std::make_unique<FileBuffer>(path)),
      stream_(buffer_.get()),
      reader_(std::make_unique<GzipReader>(stream_, path)) {}

std::filesystem::file_type file_type_at(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_type type = std::filesystem::status(path, error).type();
  expect(type != std::filesystem::file_type::none, "read: {}: {}", path.string(), error.message());
  return type;
}

std::vector<std::uint8_t> read_all(GzipReader& in, std::size_t max) {
  std::vector<std::uint8_t> bytes;
  while (true) {
    const std::size_t begin = bytes.size();
    bytes.resize(begin + chunk_bytes);
    const std::size_t got = in.read(std::span(bytes).subspan(begin));
    bytes.resize(begin + got);
    expect(bytes.size() <= max, "read: {}: more than {} bytes", in.name(), max);
    if (got < chunk_bytes) return bytes;
  }
}

std::vector<std::uint8_t> read_bytes(const std::string& path, std::size_t max) {
  const Descriptor file = open_to_read(path);
  struct stat status {};
  expect(::fstat(file.number(), &status) == 0, "read: {}: {}", path, std::strerror(errno));
  const auto size = static_cast<std::size_t>(status.st_size);
  expect(size <= max, "read: {}: {} bytes, above the limit of {}", path, size, max);
  std::vector<std::uint8_t> bytes(size);
  std::size_t filled = 0;
  while (filled < size) {
    const std::span<char> rest(reinterpret_cast<char*>(bytes.data()) + filled, size - filled);
    const std::size_t got = read_some(file, path, rest);
    if (got == 0) break;
    filled += got;
  }
  bytes.resize(filled);
  return bytes;
}

}  // namespace sotto
