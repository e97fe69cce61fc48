// Identifies the device that stores a tensor's bytes.
#pragma once

namespace sotto {

enum class DeviceKind { cpu, cuda };

// A device: the CPU, or GPU number `index` among the usable ones.
struct Device {
  DeviceKind kind = DeviceKind::cpu;  // CPU or GPU
  int index = 0;                      // 0 for the CPU

  bool operator==(const Device&) const = default;
};

inline constexpr Device cpu{};  // the host

}  // namespace sotto
