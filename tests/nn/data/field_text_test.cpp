#include "nn/data/tables/field_text.h"

#include <cmath>
#include <cstdlib>
#include <string>

#include "tests/support/catch.h"

#include "core/random/philox.h"

using namespace sotto;

TEST_CASE("numbers are those of strtod, also where they are too small for a double") {
  PublicRandom random(3);
  for (int round = 0; round < 20'000; ++round) {
    std::string text = random.below(2) == 0 ? "" : random.below(2) == 0 ? "-" : "+";
    const std::int64_t whole = random.below(3), fraction = random.below(3);
    for (std::int64_t k = 0; k < whole; ++k) text += std::to_string(random.below(10));
    if (fraction > 0 || whole == 0) text += '.';
    for (std::int64_t k = 0; k < fraction; ++k)
      text += std::string(static_cast<std::size_t>(random.below(3)), '0') +
              std::to_string(random.below(10));
    if (whole + fraction == 0) text += '0';
    if (random.below(4) > 0)
      text += (random.below(2) == 0 ? "e" : "E") +
              std::to_string(random.below(2) == 0 ? random.below(700) - 350 : random.below(9) - 4);
    const double expected = std::strtod(text.c_str(), nullptr);
    CAPTURE(text);
    CHECK(is_too_large(text) == std::isinf(expected));
    if (std::isinf(expected)) {
      CHECK_FALSE(parse_number(text).has_value());
    } else {
      REQUIRE(parse_number(text).has_value());
      CHECK(*parse_number(text) == expected);
    }
  }
}

TEST_CASE("numbers at the ends of a double's range") {
  CHECK(parse_number("1e-400") == 0);
  CHECK(std::signbit(parse_number("-1e-400").value()));
  CHECK(parse_number("1e-99999999999999999999") == 0);
  CHECK(parse_number("0." + std::string(400, '0') + "1") == 0);
  CHECK(parse_number("4.9e-324") == 4.9e-324);
  CHECK(parse_number("1e-310") == 1e-310);
  for (const char* text : {"1e400", "+1e400", "-1e400", "1e99999999999999999999"}) {
    CHECK(is_too_large(text));
    CHECK_FALSE(parse_number(text).has_value());
  }
  for (const char* text : {"", "+", "1e-400x", "x", "1e", "inf", "nan", "--1", "+-1e-400"}) {
    CHECK_FALSE(is_too_large(text));
    CHECK_FALSE(parse_number(text).has_value());
  }
}
