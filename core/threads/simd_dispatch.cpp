#include "core/threads/simd_dispatch.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "core/error.h"
#include "core/join.h"

namespace sotto {

#if defined(__x86_64__)

namespace {

// The instruction sets in the order of their names in SOTTO_SIMD; each includes those before it.
enum class InstructionSet { portable, avx2, avx512, avx512_bf16, amx };
constexpr std::array<std::string_view, 5> set_names = {"portable", "avx2", "avx512", "avx512_bf16",
                                                       "amx"};

// Asks Linux for the tile registers, which a process may not use otherwise.
bool allowed_tiles() {
  constexpr long request_permission = 0x1023, tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

// The best set of the processor.
InstructionSet supported() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
    return InstructionSet::portable;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512vl") ||
      !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512dq"))
    return InstructionSet::avx2;
  if (!__builtin_cpu_supports("avx512bf16")) return InstructionSet::avx512;
  if (!__builtin_cpu_supports("amx-tile") || !__builtin_cpu_supports("amx-bf16"))
    return InstructionSet::avx512_bf16;
  return allowed_tiles() ? InstructionSet::amx : InstructionSet::avx512_bf16;
}

// The set that SOTTO_SIMD names, or the best one.
InstructionSet requested() {
  const char* const given = std::getenv("SOTTO_SIMD");
  if (!given) return InstructionSet::amx;
  const auto found = std::find(set_names.begin(), set_names.end(), given);
  check(found != set_names.end(), "SOTTO_SIMD: \"{}\" is none of {}", given, join(set_names, ", "));
  return static_cast<InstructionSet>(found - set_names.begin());
}

bool has(InstructionSet set) {
  static const InstructionSet best = std::min(requested(), supported());
  return set <= best;
}

}  // namespace

bool has_avx2() { return has(InstructionSet::avx2); }
bool has_avx512() { return has(InstructionSet::avx512); }
bool has_avx512_bf16() { return has(InstructionSet::avx512_bf16); }
bool has_amx() { return has(InstructionSet::amx); }

#endif

}  // namespace sotto
