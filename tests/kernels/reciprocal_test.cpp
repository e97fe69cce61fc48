#include "kernels/host_device/reciprocal.h"

#include "tests/support/kernel_cases.h"

using namespace sotto;

TEST_CASE("a reciprocal divides every number below 2^31 as division does") {
  Random random(81);
  const auto number = [&] { return between(random, 1, std::int64_t{1} << between(random, 0, 31)); };
  const auto check_one = [](std::int64_t divisor, std::int64_t n) {
    const auto [quotient, remainder] = Reciprocal(divisor)(static_cast<std::uint32_t>(n));
    return quotient == n / divisor && remainder == n % divisor;
  };
  for (int round = 0; round < 20'000; ++round) {
    const std::int64_t divisor = std::min(number(), Reciprocal::limit - 1), multiple = number();
    INFO(divisor);
    // Around multiples of the divisor a wrong rounding shows.
    for (const std::int64_t n : {multiple, multiple / divisor * divisor - 1,
                                 multiple / divisor * divisor, Reciprocal::limit - 1}) {
      if (n >= 0 && n < Reciprocal::limit) REQUIRE(check_one(divisor, n));
    }
  }
}
