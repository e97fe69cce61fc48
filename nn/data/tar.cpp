#include "nn/data/tar.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "nn/data/expect.h"

namespace sotto {

namespace {

constexpr std::size_t block_bytes = 512;
constexpr std::size_t chunk_bytes = std::size_t{1} << 20;

// A header's fields (POSIX.1-2001, pax, "ustar Interchange Format").
struct Field {
  std::size_t offset, bytes;
};
constexpr Field name_field{0, 100}, size_field{124, 12}, checksum_field{148, 8},
    prefix_field{345, 155}, magic_field{257, 6};
constexpr std::size_t type_offset = 156;

using Header = std::array<std::uint8_t, block_bytes>;

// The text up to a zero.
std::string text(const Header& header, const Field& field) {
  const auto begin = header.begin() + static_cast<std::ptrdiff_t>(field.offset);
  const auto end = begin + static_cast<std::ptrdiff_t>(field.bytes);
  return {begin, std::find(begin, end, 0)};
}

// Octal digits with blanks around them; nullopt for anything else, as sizes of 8 GiB and more.
std::optional<std::uint64_t> number(const Header& header, const Field& field) {
  std::string digits = text(header, field);
  digits.erase(0, digits.find_first_not_of(' '));
  digits.erase(digits.find_last_not_of(' ') + 1);
  if (digits.empty()) return std::nullopt;
  std::uint64_t value = 0;
  for (const char digit : digits) {
    if (digit < '0' || digit > '7') return std::nullopt;
    value = 8 * value + static_cast<std::uint64_t>(digit - '0');
  }
  return value;
}

// The sum of the header's bytes, with blanks for the checksum itself.
std::uint64_t checksum(const Header& header) {
  std::uint64_t sum = 0;
  for (std::size_t k = 0; k < header.size(); ++k) {
    const bool own = k >= checksum_field.offset && k < checksum_field.offset + checksum_field.bytes;
    sum += own ? std::uint64_t{' '} : header[k];
  }
  return sum;
}

}  // namespace

// Returns false at the end: at a block of zeros, or where the archive ends.
bool TarReader::read_header() {
  Header header{};
  const std::uint64_t begin = at_;
  const std::size_t got = in_.read(header);
  at_ += got;
  if (got == 0) return false;
  expect(got == block_bytes, "tar: {}: the archive ends within a header, at byte {}", in_.name(),
         at_);
  if (std::all_of(header.begin(), header.end(), [](std::uint8_t byte) { return byte == 0; }))
    return false;
  expect(number(header, checksum_field) == checksum(header),
         "tar: {}: no header of an archive at byte {}", in_.name(), begin);
  const auto bytes = number(header, size_field);
  expect(bytes.has_value(), "tar: {}: no size in the header at byte {}", in_.name(), begin);
  const bool ustar = text(header, magic_field) == "ustar";
  const std::string prefix = ustar ? text(header, prefix_field) : "";
  entry_ = {prefix + (prefix.empty() ? "" : "/") + text(header, name_field), *bytes};
  type_ = static_cast<char>(header[type_offset]);
  left_ = *bytes;
  padding_ = (block_bytes - *bytes % block_bytes) % block_bytes;
  return true;
}

void TarReader::skip(std::uint64_t bytes) {
  std::vector<std::uint8_t> unused(std::min<std::uint64_t>(bytes, chunk_bytes));
  while (bytes > 0) {
    const std::size_t wanted = std::min<std::uint64_t>(bytes, unused.size());
    const std::size_t got = in_.read(std::span(unused).first(wanted));
    at_ += got;
    expect(got == wanted, "tar: {}: the archive ends within {}, at byte {}", in_.name(),
           entry_.name, at_);
    bytes -= got;
  }
}

std::optional<TarReader::Entry> TarReader::next() {
  do {
    skip(left_ + padding_);
    left_ = padding_ = 0;
    if (!read_header()) {
      std::array<std::uint8_t, block_bytes> rest{};
      while (in_.read(rest) > 0) continue;  // GzipReader checks its sum at the end
      return std::nullopt;
    }
  } while (type_ != '0' && type_ != '\0');
  return entry_;
}

std::string TarReader::contents(std::size_t max) {
  expect(left_ <= max, "tar: {}: {} has {} bytes, above the limit of {}", in_.name(), entry_.name,
         left_, max);
  std::string bytes;
  while (left_ > 0) {
    const std::size_t begin = bytes.size(), wanted = std::min<std::uint64_t>(left_, chunk_bytes);
    bytes.resize(begin + wanted);
    const std::size_t got =
        in_.read({reinterpret_cast<std::uint8_t*>(bytes.data()) + begin, wanted});
    at_ += got;
    expect(got == wanted, "tar: {}: the archive ends within {}, at byte {}", in_.name(),
           entry_.name, at_);
    left_ -= got;
  }
  return bytes;
}

}  // namespace sotto
