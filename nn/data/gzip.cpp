#include "nn/data/gzip.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

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

// zlib's state.
struct Inflater {
  Inflater() {
    if (inflateInit2(&stream, gzip_only) != Z_OK) throw SystemFailure("gzip: no memory to inflate");
  }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  z_stream stream{};
  bool ended = false;  // between members, or after the last
};

}  // namespace

struct GzipReader::State {
  State(std::istream& stream, std::string its_name) : in(stream), name(std::move(its_name)) {}
  // Reads the next buffer; returns false at the end of the file.
  bool refill();
  std::size_t take_plain(std::span<std::uint8_t> into);
  std::size_t take_inflated(std::span<std::uint8_t> into);

  std::istream& in;
  std::string name;
  std::vector<std::uint8_t> buffer = std::vector<std::uint8_t>(buffer_bytes);
  std::span<const std::uint8_t> left;  // the bytes of `buffer` that are not used yet
  std::optional<Inflater> inflater;    // none for a plain file
};

bool GzipReader::State::refill() {
  in.read(reinterpret_cast<char*>(buffer.data()), static_cast<std::streamsize>(buffer.size()));
  if (in.bad()) throw SystemFailure(fmt::format("read: {}: the file cannot be read", name));
  left = std::span<const std::uint8_t>(buffer).first(static_cast<std::size_t>(in.gcount()));
  return !left.empty();
}

std::size_t GzipReader::State::take_plain(std::span<std::uint8_t> into) {
  const std::size_t count = std::min(into.size(), left.size());
  std::copy_n(left.begin(), count, into.begin());
  left = left.subspan(count);
  return count;
}

std::size_t GzipReader::State::take_inflated(std::span<std::uint8_t> into) {
  z_stream& z = inflater->stream;
  if (inflater->ended) {
    const bool another = left.front() == 0x1f;  // inflate() judges the rest of the header
    if (!another) throw SystemFailure(fmt::format("gzip: {}: bytes after the end", name));
    inflateReset(&z);
    inflater->ended = false;
  }
  if (left.empty()) throw SystemFailure(fmt::format("gzip: {}: the file ends early", name));
  const std::size_t max = std::min<std::size_t>(into.size(), std::numeric_limits<uInt>::max());
  z.next_in = const_cast<Bytef*>(left.data());
  z.avail_in = static_cast<uInt>(left.size());
  z.next_out = into.data();
  z.avail_out = static_cast<uInt>(max);
  const int status = inflate(&z, Z_NO_FLUSH);
  left = left.last(z.avail_in);
  inflater->ended = status == Z_STREAM_END;
  if (status != Z_OK && status != Z_STREAM_END) {
    throw SystemFailure(fmt::format("gzip: {}: damaged: {}", name, z.msg ? z.msg : "no progress"));
  }
  return max - z.avail_out;
}

GzipReader::GzipReader(std::istream& in, std::string name)
    : state_(std::make_unique<State>(in, std::move(name))) {
  if (state_->refill() && gzip_signature(state_->left)) state_->inflater.emplace();
}

GzipReader::~GzipReader() = default;

const std::string& GzipReader::name() const { return state_->name; }

std::size_t GzipReader::read(std::span<std::uint8_t> into) {
  State& file = *state_;
  std::size_t filled = 0;
  while (filled < into.size()) {
    if (file.left.empty() && !file.refill() && (!file.inflater || file.inflater->ended)) break;
    const std::span<std::uint8_t> rest = into.subspan(filled);
    filled += file.inflater ? file.take_inflated(rest) : file.take_plain(rest);
  }
  return filled;
}

}  // namespace sotto
