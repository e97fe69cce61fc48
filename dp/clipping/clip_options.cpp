#include "dp/clipping/clip_options.h"

#include <algorithm>
#include <bit>

#include "core/allocator/allocator.h"
#include "core/devices.h"

namespace sotto {

std::size_t automatic_grad_budget(Device device, std::size_t free) {
  constexpr std::size_t on_cpu = std::size_t{512} << 20;
  return device == cpu ? on_cpu : std::bit_floor(free / 2);
}

namespace {

// The bytes that tensors on the device may still take: its limit, else its memory, less what they
// have. 0 where neither is known.
std::size_t free_bytes(Device device) {
  std::size_t most = allocator(device).limit();
  for (const DeviceInfo& info : devices()) {
    if (info.device == device && most == 0) most = static_cast<std::size_t>(info.memory);
  }
  const MemoryStatistics held = allocator(device).statistics();
  return most - std::min(most, held.current + held.cached);
}

}  // namespace

std::size_t GradBudget::bytes(const ClipOptions& options, Device device) {
  if (options.per_sample_grad_budget) return *options.per_sample_grad_budget;
  if (!automatic_)
    automatic_ = automatic_grad_budget(device, device == cpu ? 0 : free_bytes(device));
  return *automatic_;
}

}  // namespace sotto
