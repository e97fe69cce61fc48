#include "dp/sampling/packed_units.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/error.h"

namespace sotto {

namespace {

constexpr int byte_bits = 8;
constexpr int max_bits = 62;  // of a gap

// Both take the lowest bits of a number, and of a byte, first.
class BitWriter {
 public:
  void add(std::uint64_t value, int bits) {
    while (bits > 0) {
      if (free_ == 0) {
        bytes_.emplace_back();
        free_ = byte_bits;
      }
      const int now = std::min(bits, free_);
      const std::uint64_t low = value & ((std::uint64_t{1} << now) - 1);
      bytes_.back() |= static_cast<std::byte>(low << (byte_bits - free_));
      free_ -= now;
      value >>= now;
      bits -= now;
    }
  }
  std::vector<std::byte> take() && { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
  int free_ = 0;  // bits of the last byte
};

class BitReader {
 public:
  explicit BitReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint64_t take(int bits) {
    std::uint64_t value = 0;
    for (int taken = 0; taken < bits;) {
      check(!bytes_.empty(), "packed units: they end early");
      const int now = std::min(bits - taken, byte_bits - used_);
      const auto byte = std::to_integer<std::uint64_t>(bytes_[0]) >> used_;
      value |= (byte & ((std::uint64_t{1} << now) - 1)) << taken;
      taken += now;
      used_ += now;
      if (used_ < byte_bits) continue;
      used_ = 0;
      bytes_ = bytes_.subspan(1);
    }
    return value;
  }
  // Throws unless only the zeros that fill the last byte are left.
  void check_end() {
    const bool none =
        bytes_.empty() || (bytes_.size() == 1 && used_ > 0 && take(byte_bits - used_) == 0);
    check(none, "packed units: more follows the last unit");
  }

 private:
  std::span<const std::byte> bytes_;
  int used_ = 0;  // bits of the first byte
};

// The numbers between the units, and before the first.
std::vector<std::uint64_t> gaps_of(std::span<const std::int64_t> units) {
  std::vector<std::uint64_t> gaps;
  std::int64_t next = 0;
  for (const std::int64_t unit : units) {
    check(unit >= next, "packed units: unit {} where {} or more would follow", unit, next);
    gaps.push_back(static_cast<std::uint64_t>(unit - next));
    next = unit + 1;
  }
  return gaps;
}

// The mean number of the gaps' bits: a few long gaps hardly change it.
int order_for(const std::vector<std::uint64_t>& gaps) {
  std::uint64_t bits = 0;
  for (const std::uint64_t gap : gaps) bits += static_cast<std::uint64_t>(std::bit_width(gap));
  return gaps.empty() ? 0 : static_cast<int>(bits / gaps.size());
}

}  // namespace

// The number of units (64 bits), the order (8), and for each gap: as many zeros as
// (gap >> order) + 1 has bits after its first, a one, these bits, and the lowest `order` of the
// gap.
std::vector<std::byte> packed_units(std::span<const std::int64_t> units) {
  const std::vector<std::uint64_t> gaps = gaps_of(units);
  const int order = order_for(gaps);
  BitWriter bits;
  bits.add(gaps.size(), 64);
  bits.add(static_cast<std::uint64_t>(order), byte_bits);
  for (const std::uint64_t gap : gaps) {
    const std::uint64_t high = (gap >> order) + 1;
    const int more = std::bit_width(high) - 1;
    bits.add(0, more);
    bits.add(1, 1);
    bits.add(high, more);
    bits.add(gap, order);
  }
  return std::move(bits).take();
}

std::vector<std::int64_t> unpacked_units(std::span<const std::byte> bytes,
                                         std::int64_t population) {
  BitReader bits(bytes);
  const std::uint64_t count = bits.take(64);
  check(count <= static_cast<std::uint64_t>(population), "packed units: {} of {}", count,
        population);
  const auto order = static_cast<int>(bits.take(byte_bits));
  std::vector<std::int64_t> units;
  std::int64_t next = 0;
  for (std::uint64_t k = 0; k < count; ++k) {
    int more = 0;
    while (bits.take(1) == 0) ++more;
    check(more + order <= max_bits, "packed units: a gap of {} bits", more + order);
    const std::uint64_t high = (std::uint64_t{1} << more | bits.take(more)) - 1;
    const std::uint64_t gap = high << order | bits.take(order);
    check(gap < static_cast<std::uint64_t>(population - next),
          "packed units: a gap of {} after unit {} of {}", gap, next - 1, population);
    units.push_back(next + static_cast<std::int64_t>(gap));
    next = units.back() + 1;
  }
  bits.check_end();
  return units;
}

}  // namespace sotto
