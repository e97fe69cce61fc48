#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/dtype.h"
#include "tests/support/catch.h"

using namespace sotto;

namespace {

template <class H>
H from_bits(std::uint32_t bits) {
  H h;
  h.bits = static_cast<std::uint16_t>(bits);
  return h;
}

// The value of a bit pattern by the definition of IEEE 754 with `digits` stored fraction bits.
double defined_value(std::uint32_t bits, int digits, int bias) {
  const int exponent = static_cast<int>((bits & 0x7fff) >> digits);
  const double fraction = std::ldexp(bits & ((1u << digits) - 1), -digits);
  const int top = (1 << (15 - digits)) - 1;
  double value =
      exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  if (exponent == top) {
    value = fraction == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  }
  return bits >> 15 ? -value : value;
}

// Counts the patterns without their defined value, or that do not survive the round trip.
template <class H>
int wrong_patterns(int digits, int bias) {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float x = from_bits<H>(bits);
    const double expected = defined_value(bits, digits, bias);
    if (std::isnan(expected)) {
      const float again = H(x);
      wrong += std::isnan(x) && std::isnan(again) && std::signbit(x) == (bits >> 15) ? 0 : 1;
    } else {
      const bool same = x == expected && std::signbit(x) == (bits >> 15);
      wrong += same && H(x).bits == bits ? 0 : 1;
    }
  }
  return wrong;
}

// Counts wrong roundings between each pair of neighbours: their middle rounds to the even one, and
// the floats next to the middle round to the nearer one, for either sign.
template <class H>
int wrong_middles(std::uint32_t infinity) {
  int wrong = 0;
  for (std::uint32_t low = 0; low < infinity; ++low) {
    const double below = static_cast<float>(from_bits<H>(low));
    const double step = low == 0 ? static_cast<float>(from_bits<H>(1))
                                 : below - static_cast<float>(from_bits<H>(low - 1));
    // Above the largest number, rounding works as if there were another number.
    const double above =
        low + 1 == infinity ? below + step : static_cast<float>(from_bits<H>(low + 1));
    const auto middle = static_cast<float>((below + above) / 2);
    if (middle != (below + above) / 2) continue;  // the half of a subnormal is not always a float
    const std::uint32_t even = low % 2 == 0 ? low : low + 1;
    const float under = std::nextafter(middle, 0.0f);
    const float over = std::nextafter(middle, std::numeric_limits<float>::infinity());
    wrong += H(middle).bits == even && H(-middle).bits == (even | 0x8000) ? 0 : 1;
    wrong += H(under).bits == low && H(-under).bits == (low | 0x8000) ? 0 : 1;
    wrong += H(over).bits == low + 1 && H(-over).bits == ((low + 1) | 0x8000) ? 0 : 1;
  }
  return wrong;
}

}  // namespace

TEST_CASE("each of the 65536 patterns has its value and survives the round trip") {
  CHECK(wrong_patterns<f16>(10, 15) == 0);
  CHECK(wrong_patterns<bf16>(7, 127) == 0);
}

TEST_CASE("floats round to the nearest, halves to even, beyond the largest to infinity") {
  CHECK(wrong_middles<f16>(0x7c00) == 0);
  CHECK(wrong_middles<bf16>(0x7f80) == 0);
}

TEST_CASE("the largest f16 and the first float that rounds beyond it") {
  CHECK(static_cast<float>(f16(65504.0f)) == 65504.0f);
  CHECK(static_cast<float>(f16(65519.996f)) == 65504.0f);
  CHECK(std::isinf(static_cast<float>(f16(65520.0f))));
  CHECK(std::isinf(static_cast<float>(f16(std::numeric_limits<float>::infinity()))));
  CHECK(f16(0x1p-25f).bits == 0);
  CHECK(f16(std::nextafter(0x1p-25f, 1.0f)).bits == 1);
  CHECK(f16(-0.0f).bits == 0x8000);
}

TEST_CASE("no NaN becomes an infinity, whatever its payload") {
  int wrong = 0;
  for (std::uint32_t payload = 1; payload < 0x800000; payload = payload * 3 / 2 + 1) {
    for (const std::uint32_t sign : {0u, 0x80000000u}) {
      const auto x = std::bit_cast<float>(sign | 0x7f800000u | payload);
      wrong += std::isnan(static_cast<float>(f16(x))) ? 0 : 1;
      wrong += std::isnan(static_cast<float>(bf16(x))) ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("dtypes have their sizes, names and C++ types") {
  CHECK(size_of(Dtype::f64) == 8);
  CHECK(size_of(Dtype::f32) == 4);
  CHECK(size_of(Dtype::f16) == 2);
  CHECK(size_of(Dtype::bf16) == 2);
  CHECK(size_of(Dtype::i64) == 8);
  CHECK(size_of(Dtype::i32) == 4);
  CHECK(size_of(Dtype::u8) == 1);
  CHECK(size_of(Dtype::boolean) == 1);
  for (int i = 0; i <= static_cast<int>(Dtype::boolean); ++i) {
    const auto dtype = static_cast<Dtype>(i);
    dispatch(dtype, [&]<class T>(std::type_identity<T>) { CHECK(dtype_of<T>() == dtype); });
    CHECK(is_float(dtype) == (i < 4));
  }
  CHECK_THROWS_WITH(dispatch_float(Dtype::i32, []<class T>(std::type_identity<T>) {}),
                    "dtype: i32 given where a floating-point type is needed");
}
