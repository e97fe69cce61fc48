// Lists the devices of this machine, and says why there is no GPU among them.
#include <fmt/format.h>

#include "sotto/core/devices.h"

int main() {
  constexpr double gibibyte = 1 << 30;
  for (const sotto::DeviceInfo& info : sotto::devices()) {
    fmt::print("{:<8} {:.1f} GiB  {}{}\n", name(info.device),
               static_cast<double>(info.memory) / gibibyte, info.name,
               info.detail.empty() ? "" : ", compute capability " + info.detail);
  }
  if (const std::string reason = sotto::cuda_reason(); !reason.empty()) {
    fmt::print("cuda     {}\n", reason);
  }
}
