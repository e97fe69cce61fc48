// Which devices this machine has, and what people call them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/device.h"

namespace sotto {

struct DeviceInfo {
  Device device;
  std::string name;         // as its maker calls it
  std::int64_t memory = 0;  // in bytes; 0 where the machine does not say
  std::string detail;       // of a GPU its compute capability, as "9.0"
};

// The CPU, and the GPUs that can be used. Never throws for want of a GPU: cuda_reason() says why
// there is none.
std::vector<DeviceInfo> devices();

// Why no CUDA device can be used, in one line; empty when one can.
std::string cuda_reason();

// "cpu", "cuda:0"
std::string name(Device device);

// The device called "cpu", "cuda" (the first GPU) or "cuda:N". Throws std::invalid_argument for
// another name, and, with the reason, for a device that cannot be used here.
Device parse_device(std::string_view name);

}  // namespace sotto
