// What the pretended GPU (pretend_gpu.cpp) has been asked for.
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

// Since the process began; nothing where no GPU is pretended.
inline std::optional<PretendedCounts> pretended_counts() {
  const char* const library = std::getenv("SOTTO_CUDA_LIBRARY");
  void* const handle = library ? dlopen(library, RTLD_NOW | RTLD_NOLOAD) : nullptr;
  using Ask = PretendedCounts();
  auto* const ask =
      handle ? reinterpret_cast<Ask*>(dlsym(handle, "sotto_pretended_counts")) : nullptr;
  return ask ? std::optional(ask()) : std::nullopt;
}

}  // namespace sotto
