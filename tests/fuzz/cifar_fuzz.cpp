// Any bytes are a file of CIFAR-10 or CIFAR-100, or are refused with SystemFailure.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "core/error.h"
#include "nn/data/images/cifar.h"

namespace {

using namespace sotto;

void parse(const std::string& bytes, CifarKind kind, double classes) {
  std::istringstream in(bytes);
  try {
    const Dataset data = read_cifar(in, "fuzz", kind, 3);
    if (data.size() < 1 || data.size() > 3) std::abort();
    for (std::int64_t k = 0; k < data.size(); ++k) {
      if (data.targets.at({k}) < 0 || data.targets.at({k}) >= classes) std::abort();
    }
  } catch (const SystemFailure&) {
    return;  // the expected answer to most inputs
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  parse(bytes, CifarKind::cifar10, 10);
  parse(bytes, CifarKind::cifar100, 100);
  return 0;
}
