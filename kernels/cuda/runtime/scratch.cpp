#include "kernels/cuda/runtime/scratch.h"

#include "core/allocator/allocator.h"

namespace sotto {

void* take_scratch(Device device, std::size_t bytes) { return allocator(device).allocate(bytes); }

void give_scratch_back(Device device, void* address) noexcept {
  if (address) allocator(device).release(address);
}

}  // namespace sotto
