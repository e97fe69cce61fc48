#include "core/random/fixed_point.h"

#include "core/random/secret_random.h"
#include "tests/support/catch.h"

using namespace sotto;

namespace {

Fixed128 wide(std::uint64_t high, std::uint64_t low) { return Fixed128{high} << 64 | low; }

bool within(Fixed128 a, Fixed128 b, Fixed128 distance) {
  return (a > b ? a - b : b - a) <= distance;
}

}  // namespace

// pi times 10 e, from 300-bit arithmetic.
TEST_CASE("products are those of long multiplication, or a little smaller") {
  const Fixed128 pi = wide(0x03243f6a8885a308, 0xd313198a2e037073);
  const Fixed128 ten_e = wide(0x1b2ecd2dd96d43a8, 0x2b7a6d7506219185);
  const Fixed128 product = wide(0x5565b8385d264717, 0xe529b602e13f4301);
  CHECK(multiply(pi, ten_e) <= product);
  CHECK(within(multiply(pi, ten_e), product, 2));
  CHECK(within(multiply(to_fixed64(pi), to_fixed64(ten_e)), to_fixed64(product), 32));
  CHECK(multiply(pi, one128) == pi);
  CHECK(multiply(16 * one128, pi) == 16 * pi);
  CHECK(multiply(to_fixed64(pi), 2 * one64) == 2 * to_fixed64(pi));
  CHECK(multiply(pi, Fixed128{0}) == 0);
}

// Reference digits from 300-bit arithmetic.
TEST_CASE("exponentials have the known digits") {
  CHECK(exp_minus(Fixed128{0}) == one128);
  CHECK(exp_minus(Fixed64{0}) == one64);
  const Fixed128 quarter = wide(0x00c75f7cf5641057, 0x43415cbc9d6368f3);
  CHECK(within(exp_minus(one128 / 4), quarter, 8));
  const Fixed128 tenth = wide(0x0019999999999999, 0x9999999999999999);
  CHECK(within(exp_minus(tenth), wide(0x00e7a36ccea959d4, 0x0151e5380f2cede8), 8));
  const Fixed128 tiny = wide(0x0000068db8bac710, 0xcb295e9e1b089a02);
  CHECK(within(exp_minus(tiny), wide(0x00fff9725cbe98e8, 0x18e682fd9baeee2a), 8));
  constexpr Fixed128 tolerance = one128 >> 111;
  CHECK(within(exp_minus_large(one128), wide(0x005e2d58d8b3bcdf, 0x1abadec7829054f9), tolerance));
  CHECK(
      within(exp_minus_large(7 * one128), wide(0x00003bc2d7384953, 0x1d57332efd57ef4a), tolerance));
  CHECK(exp_minus_large(0) == one128);
}

TEST_CASE("the 64-bit exponential is the 128-bit one within 2^-31") {
  auto random = SecretRandom::insecure_seeded(1);
  for (int i = 0; i < 100'000; ++i) {
    const Fixed64 x = random.word() >> 10;  // below 1/4
    const Fixed64 exact = to_fixed64(exp_minus(Fixed128{x} << 64));
    const Fixed64 fast = exp_minus(x);
    if (!within(fast, exact, one64 >> 31)) FAIL(x);
  }
}

TEST_CASE("the exponential of a sum is the product") {
  auto random = SecretRandom::insecure_seeded(2);
  for (int i = 0; i < 2'000; ++i) {
    const Fixed128 a = wide(random.word() >> 11, random.word());
    const Fixed128 b = wide(random.word() >> 11, random.word());
    if (!within(exp_minus(a + b), multiply(exp_minus(a), exp_minus(b)), 32)) FAIL(i);
  }
}
