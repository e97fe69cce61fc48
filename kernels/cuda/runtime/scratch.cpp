#include "kernels/cuda/runtime/scratch.h"

#include "core/allocator/allocator.h"
#include "core/cuda/capture.h"
#include "kernels/cuda/runtime/room.h"

namespace sotto {

void* take_scratch(Device device, std::size_t bytes) { return allocator(device).allocate(bytes); }

void give_scratch_back(Device device, void* address) noexcept {
  if (address) allocator(device).release(address);
}

void make_room(Device device) {
  if (Capture::here()) no_room(device);
  allocator(device).release_cached();
}

void no_room(Device device) {
  const Allocator& memory = allocator(device);
  throw OutOfMemory(0, memory_label(), memory.limit(), memory.statistics(), memory.live());
}

}  // namespace sotto
