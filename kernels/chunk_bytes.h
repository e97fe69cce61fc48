// The bytes of a temporary that is made, used and dropped a part at a time.
#pragma once

#include <cstdint>

#include "core/device.h"

namespace sotto {

// On a CPU as much as its caches hold; on a GPU enough to fill it.
inline std::int64_t chunk_bytes(Device device, std::int64_t on_cpu) {
  constexpr std::int64_t on_gpu = std::int64_t{256} << 20;
  return device == cpu ? on_cpu : on_gpu;
}

}  // namespace sotto
