// Any bytes are a file of CIFAR-10 or CIFAR-100, or an archive of them, or are refused with
// SystemFailure.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "core/error.h"
#include "nn/data/images/cifar.h"

namespace {

using namespace sotto;

template <class Read>
void parse(double classes, const Read& read) {
  try {
    const Dataset data = read();
    if (data.size() < 1 || data.size() > 3) std::abort();
    for (std::int64_t k = 0; k < data.size(); ++k) {
      if (data.targets.at({k}) < 0 || data.targets.at({k}) >= classes) std::abort();
    }
  } catch (const SystemFailure&) {
    return;  // the expected answer to most inputs
  }
}

void parse_as(const std::string& bytes, CifarKind kind, double classes) {
  std::istringstream file(bytes), archive(bytes);
  parse(classes, [&] { return read_cifar(file, "fuzz", kind, 3); });
  parse(classes, [&] { return read_cifar_archive(archive, "fuzz", kind, false, 3); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  parse_as(bytes, CifarKind::cifar10, 10);
  parse_as(bytes, CifarKind::cifar100, 100);
  return 0;
}
