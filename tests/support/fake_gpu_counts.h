// Counts of the calls that the pretended GPU (fake_gpu.cpp) was given, and how it is made to fail.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>

#include <dlfcn.h>

namespace sotto {

struct PretendedCounts {
  std::int64_t launches = 0;  // a graph counts as one
  std::int64_t waits = 0;     // of the host for the GPU
};

// A function of the pretended GPU; null where none is.
template <class Function>
Function* pretended(const char* name) {
  const char* const library = std::getenv("SOTTO_CUDA_LIBRARY");
  void* const handle = library ? dlopen(library, RTLD_NOW | RTLD_NOLOAD) : nullptr;
  return handle ? reinterpret_cast<Function*>(dlsym(handle, name)) : nullptr;
}

// Since the process began; nothing where no GPU is pretended.
inline std::optional<PretendedCounts> pretended_counts() {
  auto* const ask = pretended<PretendedCounts()>("sotto_pretended_counts");
  return ask ? std::optional(ask()) : std::nullopt;
}

// From now on what is captured loses this one of its launches; none below 0. False where no GPU is
// pretended.
inline bool lose_launch(int launch) {
  auto* const lose = pretended<void(int)>("sotto_pretended_lose");
  if (lose) lose(launch);
  return lose != nullptr;
}

// The launch after this many since the process began fails, with SystemFailure; none below 0.
inline void fail_launch(std::int64_t number) {
  pretended<void(std::int64_t)>("sotto_pretended_fail")(number);
}

}  // namespace sotto
