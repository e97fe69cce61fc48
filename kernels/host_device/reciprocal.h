// Division by a constant, as a multiplication.
#pragma once

#include <bit>
#include <cstdint>

#include "core/half.h"

namespace sotto {

// n / divisor and the remainder, for n below 2^31, by one multiplication (Granlund and Montgomery
// 1994, figure 4.1): with 2^s >= divisor, multiplier / 2^32 is 2^s / divisor - 1, rounded up.
class Reciprocal {
 public:
  static constexpr std::int64_t limit = std::int64_t{1} << 31;

  // 0 < divisor < limit
  explicit Reciprocal(std::int64_t divisor)
      : divisor_(static_cast<std::uint32_t>(divisor)),
        shift_(static_cast<std::uint32_t>(std::bit_width(divisor_ - 1))),
        multiplier_(static_cast<std::uint32_t>(
            (((std::uint64_t{1} << shift_) - divisor_) << 32) / divisor_ + 1)) {}

  struct Division {
    std::uint32_t quotient, remainder;
  };
  HD Division operator()(std::uint32_t n) const {
    const auto high = static_cast<std::uint32_t>(std::uint64_t{n} * multiplier_ >> 32);
    const std::uint32_t quotient = (high + n) >> shift_;
    return {quotient, n - quotient * divisor_};
  }

 private:
  std::uint32_t divisor_, shift_, multiplier_;
};

// n / divisor and the remainder for any n >= 0: by a reciprocal where both are small.
class Divisor {
 public:
  explicit Divisor(std::int64_t divisor = 1)
      : divisor_(divisor < 1 ? 1 : divisor), small_(divisor_ < Reciprocal::limit ? divisor_ : 1) {}

  struct Division {
    std::int64_t quotient, remainder;
  };
  HD Division operator()(std::int64_t n) const {
    if (n < Reciprocal::limit && divisor_ < Reciprocal::limit) {
      const auto [quotient, remainder] = small_(static_cast<std::uint32_t>(n));
      return {quotient, remainder};
    }
    return {n / divisor_, n % divisor_};
  }

 private:
  std::int64_t divisor_;
  Reciprocal small_;
};

}  // namespace sotto
