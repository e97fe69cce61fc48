// libFuzzer target: any bytes are parsed or refused with std::invalid_argument.
#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "core/io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    sotto::parse_safetensors(std::as_bytes(std::span(data, size)), "fuzz");
  } catch (const std::invalid_argument&) {
  }
  return 0;
}
