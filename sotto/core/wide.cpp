#include "sotto/core/wide.h"

#include <cstdlib>
#include <string_view>

#include "sotto/core/error.h"

namespace sotto {

#if defined(__x86_64__)

bool has_avx2() {
  static const bool has = [] {
    const char* wanted = std::getenv("SOTTO_INSTRUCTIONS");
    check(!wanted || std::string_view(wanted) == "portable",
          "SOTTO_INSTRUCTIONS: \"{}\" is not \"portable\"", wanted ? wanted : "");
    return !wanted && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  }();
  return has;
}

bool has_avx512() {
  static const bool has =
      has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
  return has;
}

#endif

}  // namespace sotto
