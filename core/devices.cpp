#include "core/devices.h"

#include <algorithm>
#include <charconv>
#include <fstream>

#include <unistd.h>

#include "core/cuda/cuda_library.h"
#include "core/error.h"
#include "core/io/utf8.h"

namespace sotto {

namespace {

// The processor's name from /proc/cpuinfo (Linux); "CPU" if it is missing there.
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

std::int64_t cpu_memory() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return pages < 0 || page < 0 ? 0 : std::int64_t{pages} * page;
}

}  // namespace

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> all{{cpu, cpu_name(), cpu_memory(), ""}};
  if (cuda_reason().empty()) {
    const auto& gpus = cuda_runtime().devices();
    all.insert(all.end(), gpus.begin(), gpus.end());
  }
  return all;
}

std::string name(Device device) {
  return device == cpu
             ? "cpu"
             : (device.kind == DeviceKind::cpu ? "cpu:" : "cuda:") + std::to_string(device.index);
}

Device parse_device(std::string_view name) {
  if (name == "cpu") return cpu;
  constexpr std::string_view kind = "cuda";
  const std::string_view number =
      name == kind ? ":0" : name.substr(std::min(kind.size(), name.size()));
  int index = -1;
  const char* const end = number.data() + number.size();
  const bool known = name.starts_with(kind) && number.starts_with(':') &&
                     std::from_chars(number.data() + 1, end, index).ptr == end && index >= 0;
  check(known, "device: \"{}\" is none of cpu, cuda and cuda:N", excerpt(name));
  const auto count = static_cast<int>(cuda_runtime().devices().size());
  check(index < count, "device: {}, but there are {} GPUs", excerpt(name), count);
  return {DeviceKind::cuda, index};
}

}  // namespace sotto
