#include "core/threads/simd_dispatch.h"

#include <cstdlib>
#include <string_view>

#include "core/error.h"

namespace sotto {

#if defined(__x86_64__)

namespace {

// The value of SOTTO_SIMD; empty if it is not set.
std::string_view requested() {
  static const std::string_view requested = [] {
    const char* const given = std::getenv("SOTTO_SIMD");
    const std::string_view value = given ? given : "";
    check(!given || value == "portable" || value == "avx2",
          "SOTTO_SIMD: \"{}\" is neither \"portable\" nor \"avx2\"", value);
    return value;
  }();
  return requested;
}

}  // namespace

bool has_avx2() {
  static const bool has =
      requested() != "portable" && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has;
}

bool has_avx512() {
  static const bool has = has_avx2() && requested() != "avx2" &&
                          __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
  return has;
}

#endif

}  // namespace sotto
