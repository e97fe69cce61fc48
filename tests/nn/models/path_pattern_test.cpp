#include "nn/models/path_pattern.h"

#include "core/error.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;
using nn::PathPattern;

TEST_CASE("a pattern fits a whole path, or its ending behind a dot") {
  CHECK(PathPattern("c_attn").fits_ending("h.0.attn.c_attn"));
  CHECK(PathPattern("attn.c_attn|x").fits_ending("h.0.attn.c_attn"));
  CHECK(!PathPattern("attn").fits_ending("h.0.attn.c_attn"));
  CHECK(!PathPattern("c_attn").fits("h.0.attn.c_attn"));
  CHECK(PathPattern(R"(h\.[0-3]\..*\.c_attn)").fits("h.0.attn.c_attn"));
  CHECK(PathPattern("query|value").fits_ending("query"));
  CHECK(!PathPattern("query|value").fits_ending("query_norm"));
  CHECK(!PathPattern("").fits_ending("query"));
}

TEST_CASE("a quoted text fits itself alone") {
  for (const char* text : {"h.0.attn", "a+b", "(x)", "[1]{2}", "\\d", "^$|?*"}) {
    CHECK(PathPattern(nn::quoted(text)).fits(text));
    CHECK(!PathPattern(nn::quoted(text)).fits("h_0_attn"));
  }
}

TEST_CASE("what is no regular expression, or takes too long, is refused") {
  CHECK(throws([] { PathPattern("("); }, "pattern (: missing closing parenthesis at 1"));
  const PathPattern slow("(a+)+b");
  CHECK(throws<SystemFailure>([&] { slow.fits(std::string(64, 'a') + "xb"); },
                              "pattern (a+)+b: match limit exceeded"));
}
