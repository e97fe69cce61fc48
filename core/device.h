// Identifies the device that stores a tensor's bytes.
#pragma once

namespace sotto {

enum class DeviceKind { cpu, cuda };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;

  bool operator==(const Device&) const = default;
};

inline constexpr Device cpu{};

}  // namespace sotto
