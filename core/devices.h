// Lists the devices of this machine, and converts their names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/device.h"

namespace sotto {

// A device of this machine, as devices() lists it.
struct DeviceInfo {
  Device device;            // to pass to Tensor::to() and Module::to()
  std::string name;         // the manufacturer's name
  std::int64_t memory = 0;  // bytes; 0 if unknown
  std::string detail;       // the compute capability of a GPU, such as "9.0"
};

// The CPU and the usable GPUs. A machine without GPU is no error: cuda_reason() gives the reason.
std::vector<DeviceInfo> devices();

// The reason why no CUDA device can be used, in one line; empty if one can.
std::string cuda_reason();

// The device in words: "cpu", "cuda:0".
std::string name(Device device);

// The device named "cpu", "cuda" (the first GPU) or "cuda:N". Throws std::invalid_argument for any
// other name, and, with the reason, for a device that cannot be used.
Device parse_device(std::string_view name);

}  // namespace sotto
