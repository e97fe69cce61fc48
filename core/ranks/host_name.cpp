#include "core/ranks/host_name.h"

#include <array>

#include <unistd.h>

namespace sotto {

std::string host_name() {
  std::array<char, 256> name{};  // HOST_NAME_MAX is 64
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown host";
  return name.data();
}

}  // namespace sotto
