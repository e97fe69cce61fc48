#include "kernels/host_device/reciprocal.h"

#include "kernels/cuda/unfold.h"
#include "tests/support/kernel_cases.h"

using namespace sotto;

TEST_CASE("a reciprocal divides numbers below 2^31 as division does") {
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

TEST_CASE("a divisor divides numbers of any size as division does") {
  Random random(82);
  const auto number = [&] { return between(random, 1, std::int64_t{1} << between(random, 0, 62)); };
  for (int round = 0; round < 20'000; ++round) {
    const std::int64_t divisor = number(), n = number() - 1;
    const auto [quotient, remainder] = Divisor(divisor)(n);
    INFO(divisor << " " << n);
    REQUIRE(quotient == n / divisor);
    REQUIRE(remainder == n % divisor);
  }
}

namespace {

struct Loop {
  template <class F>
  void for_each(std::int64_t n, const F& f) const {
    for (std::int64_t k = 0; k < n; ++k) f(k);
  }
};

}  // namespace

TEST_CASE("patches are the same if one sample's take several launches") {
  const Tensor x = Tensor::empty({3, 4, 1, 7, 6}, Dtype::f32);
  for (std::int64_t k = 0; k < x.numel(); ++k) x.data<float>()[k] = static_cast<float>(k + 1);
  Window window;
  for (int axis = 1; axis < 3; ++axis) window.kernel[axis] = 3;
  const Tensor y = Tensor::empty({3, 2, 1, 5, 4}, Dtype::f32);
  const Geometry g(x.view(), y.view(), window);
  const std::int64_t columns = 4 * 9, positions = 20;
  const auto patches = [&](std::int64_t limit) {
    std::vector<float> room(static_cast<std::size_t>(3 * positions * columns));
    unfold_into(Loop(), g, x.view(), room.data(), limit);
    return room;
  };
  const std::vector<float> whole = patches(Reciprocal::limit);
  // Row 27, sample 1 at position (1, 3): channel 2, tap (2, 1).
  CHECK(whole[27 * columns + 2 * 9 + 7] == x.at({1, 2, 0, 3, 4}));
  for (const std::int64_t limit : {37, 80, 8 * 36 + 1, 21 * 36 + 1, 1000})
    CHECK(patches(limit) == whole);
}
