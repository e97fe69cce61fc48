#include "core/threads/simd_dispatch.h"

#include <cstdlib>
#include <string_view>

#include "core/error.h"

namespace sotto {

#if defined(__x86_64__)

namespace {

// The value of SOTTO_INSTRUCTIONS; empty if it is not set.
std::string_view wanted() {
  static const std::string_view wanted = [] {
    const char* const given = std::getenv("SOTTO_INSTRUCTIONS");
    const std::string_view value = given ? given : "";
    check(!given || value == "portable" || value == "avx2",
          "SOTTO_INSTRUCTIONS: \"{}\" is neither \"portable\" nor \"avx2\"", value);
    return value;
  }();
  return wanted;
}

}  // namespace

bool has_avx2() {
  static const bool has =
      wanted() != "portable" && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has;
}

bool has_avx512() {
  static const bool has = has_avx2() && wanted() != "avx2" && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512vl");
  return has;
}

#endif

}  // namespace sotto
