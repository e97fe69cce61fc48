#include "core/io/file_buffer.h"

#include <cerrno>
#include <cstring>

#include <unistd.h>

#include "core/error.h"

namespace sotto {

namespace {

constexpr std::size_t chunk_bytes = std::size_t{1} << 20;

}  // namespace

FileBuffer::FileBuffer(const std::string& path)
    : file_(open_to_read(path)), path_(path), buffer_(chunk_bytes) {}

FileBuffer::int_type FileBuffer::underflow() {
  ssize_t got = 0;
  do {
    got = ::read(file_.number(), buffer_.data(), buffer_.size());
  } while (got < 0 && errno == EINTR);
  if (got < 0) throw SystemFailure(fmt::format("read: {}: {}", path_, std::strerror(errno)));
  setg(buffer_.data(), buffer_.data(), buffer_.data() + got);
  return got == 0 ? traits_type::eof() : traits_type::to_int_type(buffer_[0]);
}

}  // namespace sotto
