// Any bytes are an IDX file, plain or gzip-compressed, or are refused with SystemFailure; and
// compressed they are the same file, or are refused as well.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <sstream>
#include <vector>

#include "core/error.h"
#include "nn/data/idx.h"
#include "tests/fuzz/plain_and_gzip.h"

namespace {

using namespace sotto;

std::optional<Tensor> parsed(const std::string& bytes) {
  std::istringstream in(bytes);
  try {
    return read_idx(in, "fuzz");
  } catch (const SystemFailure&) {
    return std::nullopt;  // the expected answer to most inputs
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const std::optional<Tensor> plain = parsed(bytes);
  if (compressed_already(bytes)) return 0;
  const std::optional<Tensor> unpacked = parsed(compressed(bytes));
  require(plain.has_value() == unpacked.has_value());
  if (!plain) return 0;
  require(plain->shape() == unpacked->shape());
  require(plain->to_vector<std::uint8_t>() == unpacked->to_vector<std::uint8_t>());
  return 0;
}
