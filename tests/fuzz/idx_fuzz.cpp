// Any bytes are an IDX file, plain or gzip-compressed, or are refused with SystemFailure.
#include <cstddef>
#include <cstdint>
#include <sstream>

#include "sotto/core/error.h"
#include "sotto/nn/idx.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  try {
    sotto::read_idx(in, "fuzz");
  } catch (const sotto::SystemFailure&) {
  }
  return 0;
}
