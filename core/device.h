// Identifies the device that stores a tensor's bytes.
#pragma once

namespace sotto {

// A kind of device.
enum class DeviceKind { cpu, cuda };

// A device: the CPU, or GPU number `index` among the usable ones.
struct Device {
  DeviceKind kind = DeviceKind::cpu;  // CPU or GPU
  int index = 0;                      // 0 for the CPU

  // Compares kind and index.
  bool operator==(const Device&) const = default;
};

// The host.
inline constexpr Device cpu{};

}  // namespace sotto
