// Lists the devices of this machine, and says why no GPU is among them.
#include "core/devices.h"
#include "samples/cli/command_line.h"
#include "samples/cli/program.h"

namespace {

using namespace sotto;

int list(int argc, const char* const* argv) {
  samples::CommandLine line(
      "Lists the devices of this machine, and says why no GPU is among them.");
  if (!line.parse(argc, argv)) return 0;
  constexpr double gibibyte = 1 << 30;
  for (const DeviceInfo& info : devices()) {
    samples::print("{:<8} {:.1f} GiB  {}{}\n", name(info.device),
                   static_cast<double>(info.memory) / gibibyte, info.name,
                   info.detail.empty() ? "" : ", compute capability " + info.detail);
  }
  if (const std::string reason = cuda_reason(); !reason.empty())
    samples::print("cuda     {}\n", reason);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return sotto::samples::ending("devices", [&] { return list(argc, argv); });
}
