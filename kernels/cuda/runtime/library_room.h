// Memory for the code of CUDA's libraries, which their first launches load (room.h).
#pragma once

#include <cstddef>

#include <cuda_runtime_api.h>

#include "kernels/cuda/runtime/room.h"

namespace sotto {

// The current GPU has less memory left than code may take.
inline bool short_of_memory() {
  constexpr std::size_t enough = std::size_t{256} << 20;
  std::size_t left = 0, all = 0;
  return cudaMemGetInfo(&left, &all) == cudaSuccess && left < enough;
}

// with_room() for a library with a CUDA runtime of its own. Its status says that a launch or a
// search failed, but not why: failed(status) is true for such a status.
template <class Status, class Failed, class F>
Status library_with_room(Device device, Status full, const Failed& failed, const F& f) {
  return with_room(device, full, [&] {
    const Status status = f();
    return failed(status) && short_of_memory() ? full : status;
  });
}

}  // namespace sotto
