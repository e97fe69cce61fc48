#include "nn/data/gzip.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <zlib.h>

#include "core/error.h"

namespace sotto {

namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 16;
constexpr int gzip_only = 16 + MAX_WBITS;  // zlib.h, inflateInit2: expect gzip, check its CRC

// RFC 1952, section 2.3.1: ID1 and ID2.
bool gzip_signature(std::span<const std::uint8_t> bytes) {
  return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

}  // namespace

struct GzipReader::Inflater {
  Inflater() {
    if (inflateInit2(&state, gzip_only) != Z_OK) throw SystemFailure("gzip: no memory to inflate");
  }
  ~Inflater() { inflateEnd(&state); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  z_stream state{};
  bool ended = false;  // between members, or after the last
};

GzipReader::GzipReader(std::istream& in, std::string name)
    : in_(in), name_(std::move(name)), buffer_(buffer_bytes) {
  if (refill() && gzip_signature(left_)) inflater_ = std::make_unique<Inflater>();
}

GzipReader::~GzipReader() = default;

// Reads the next buffer; returns false at the end of the file.
bool GzipReader::refill() {
  in_.read(reinterpret_cast<char*>(buffer_.data()), static_cast<std::streamsize>(buffer_.size()));
  if (in_.bad()) throw SystemFailure(fmt::format("read: {}: the file cannot be read", name_));
  left_ = std::span<const std::uint8_t>(buffer_).first(static_cast<std::size_t>(in_.gcount()));
  return !left_.empty();
}

std::size_t GzipReader::read(std::span<std::uint8_t> into) {
  std::size_t filled = 0;
  while (filled < into.size()) {
    if (left_.empty() && !refill() && (!inflater_ || inflater_->ended)) break;
    const std::span<std::uint8_t> rest = into.subspan(filled);
    filled += inflater_ ? take_inflated(rest) : take_plain(rest);
  }
  return filled;
}

std::size_t GzipReader::take_plain(std::span<std::uint8_t> into) {
  const std::size_t count = std::min(into.size(), left_.size());
  std::copy_n(left_.begin(), count, into.begin());
  left_ = left_.subspan(count);
  return count;
}

std::size_t GzipReader::take_inflated(std::span<std::uint8_t> into) {
  z_stream& z = inflater_->state;
  if (inflater_->ended) {
    const bool another = left_.front() == 0x1f;  // inflate() judges the rest of the header
    if (!another) throw SystemFailure(fmt::format("gzip: {}: bytes after the end", name_));
    inflateReset(&z);
    inflater_->ended = false;
  }
  if (left_.empty()) throw SystemFailure(fmt::format("gzip: {}: the file ends early", name_));
  const std::size_t max = std::min<std::size_t>(into.size(), std::numeric_limits<uInt>::max());
  z.next_in = const_cast<Bytef*>(left_.data());
  z.avail_in = static_cast<uInt>(left_.size());
  z.next_out = into.data();
  z.avail_out = static_cast<uInt>(max);
  const int status = inflate(&z, Z_NO_FLUSH);
  left_ = left_.last(z.avail_in);
  inflater_->ended = status == Z_STREAM_END;
  if (status != Z_OK && status != Z_STREAM_END) {
    throw SystemFailure(fmt::format("gzip: {}: damaged: {}", name_, z.msg ? z.msg : "no progress"));
  }
  return max - z.avail_out;
}

}  // namespace sotto
