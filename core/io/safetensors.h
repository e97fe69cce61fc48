// Reads and writes tensors in the safetensors format, which Python's libraries share: eight bytes
// of header length, a JSON header with the type, shape and position of each tensor, and the
// elements, row-major and little-endian.
//
// Saved files contain a checksum, the metadata entry "sotto.xxh64": XXH64 (xxh64.h), as 16
// hexadecimal digits, first of the header without that entry, as JSON with sorted keys and no
// spaces, then of each tensor's bytes in the order of the data, each with the previous sum as its
// seed. It detects damage by disks and transfers, not deliberate changes.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "core/tensor.h"

namespace sotto {

// The tensors of a safetensors file by name, and its metadata.
struct TensorFile {
  std::map<std::string, Tensor> tensors = {};        // by name
  std::map<std::string, std::string> metadata = {};  // without the checksum
  // True for a loaded file with a checksum (load_safetensors() throws if the checksum is wrong).
  bool verified = false;
};

// A file with this metadata key is secret: it is saved with mode 0600. The value is the reason.
inline constexpr const char* secret_key = "sotto.secret";

// The tensors of a file, row-major on the CPU: F64, F32, F16, BF16, I64, I32, U8 and BOOL. Throws
// SystemFailure if the file cannot be read, and std::invalid_argument, naming the file and the
// tensor, if it violates the format, its checksum is wrong, or its header has more than 100 million
// bytes or a million entries.
TensorFile load_safetensors(const std::string& path);
// Like load_safetensors() for bytes in memory; `name` stands for the file in error texts.
TensorFile parse_safetensors(std::span<const std::byte> bytes, const std::string& name);

// Writes all tensors, of any strides and device, atomically (atomic_file.h), each aligned to its
// element size. Tensors of other devices are all copied to the CPU first. A secret file
// (secret_key) is readable by its owner only. Throws std::invalid_argument for an undefined tensor,
// a name that is not UTF-8 or is "__metadata__", metadata with a checksum, or a header above the
// limits; SystemFailure if the file cannot be written.
void save_safetensors(const std::string& path, const TensorFile& file);

}  // namespace sotto
