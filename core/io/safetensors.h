// Tensors in files: the safetensors format, read and written by Python's libraries too. Eight bytes
// of header length, a JSON header with each tensor's type, shape and place, and the elements,
// row-major and little-endian.
//
// A file that was saved here has a checksum among its metadata, "sotto.xxh64": XXH64 (xxh64.h) of
// the header without it, as JSON with sorted keys and no spaces, and then of each tensor's bytes in
// the order of the data, each with the sum so far as the seed; 16 hexadecimal digits. It finds what
// disks and transfers damage, not what somebody changed on purpose.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "core/tensor.h"

namespace sotto {

struct TensorFile {
  std::map<std::string, Tensor> tensors = {};
  std::map<std::string, std::string> metadata = {};  // without the checksum
  // True for a file that was read and had a checksum; the checksum then held.
  bool verified = false;
};

// A file whose metadata have this key is secret; the value is the reason.
inline constexpr const char* secret_key = "sotto.secret";

// The tensors of a file, row-major on the CPU. F64, F32, F16, BF16, I64, I32, U8 and BOOL are
// supported. Throws SystemFailure when the file cannot be read, and std::invalid_argument, naming
// the file and the tensor, when anything in it is not as the format says, its
// checksum does not hold, or its header has more than 100 million bytes or a million entries.
TensorFile load_safetensors(const std::string& path);
// The same for bytes in memory; `name` is what messages call them.
TensorFile parse_safetensors(std::span<const std::byte> bytes, const std::string& name);

// Writes all tensors, of any strides and from any device, atomically (atomic_file.h), each at a
// multiple of its element size; those of a device are copied to the CPU first, all of them. A
// secret file (secret_key) is for nobody but its owner to read. Throws std::invalid_argument for a
// tensor that is undefined, a name that is not UTF-8 or is "__metadata__", a checksum among the
// metadata, and a header above the limits; SystemFailure when the file cannot be written.
void save_safetensors(const std::string& path, const TensorFile& file);

}  // namespace sotto
