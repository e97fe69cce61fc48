// Any bytes are an IDX file, plain or gzip-compressed, or are refused with SystemFailure; and
// compressed they are the same file, or are refused as well.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <vector>

#include <zlib.h>

#include "core/error.h"
#include "nn/data/idx.h"

namespace {

using namespace sotto;

void require(bool fact) {
  if (!fact) std::abort();
}

std::optional<Tensor> parsed(const std::string& bytes) {
  std::istringstream in(bytes);
  try {
    return read_idx(in, "fuzz");
  } catch (const SystemFailure&) {
    return std::nullopt;  // the expected answer to most inputs
  }
}

std::string compressed(const std::string& plain) {
  z_stream z{};
  require(deflateInit2(&z, 1, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&z, plain.size()) + 32, '\0');
  std::string input = plain;
  z.next_in = reinterpret_cast<Bytef*>(input.data());
  z.avail_in = static_cast<uInt>(input.size());
  z.next_out = reinterpret_cast<Bytef*>(packed.data());
  z.avail_out = static_cast<uInt>(packed.size());
  require(deflate(&z, Z_FINISH) == Z_STREAM_END);
  packed.resize(z.total_out);
  deflateEnd(&z);
  return packed;
}

bool compressed_already(const std::string& bytes) { return bytes.starts_with("\x1f\x8b"); }

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
