// The header of a safetensors file: its tensors and where they lie, whatever their types.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/io/file_context.h"
#include "core/shape.h"
#include "core/tensor.h"

namespace sotto {

struct SafetensorsEntry {
  std::string name;
  std::string type;            // "F32"
  std::optional<Dtype> dtype;  // nullopt: a type that tensors do not have
  Shape shape;
  std::size_t begin;  // bytes from the beginning of the data
  std::size_t end;
};

struct SafetensorsHeader {
  nlohmann::json json;
  std::map<std::string, std::string> metadata;  // without the checksum
  std::vector<SafetensorsEntry> entries;        // in the order of their data, without gaps
  std::span<const std::byte> data;
  bool verified = false;  // true: the checksum was there
};

namespace safetensors {

inline constexpr const char* metadata_key = "__metadata__";
inline constexpr const char* checksum_key = "sotto.xxh64";
inline constexpr std::size_t max_header_bytes = 100'000'000;  // limit of the format's own library
inline constexpr std::size_t max_entries = 1'000'000;         // parsed, they take less than 1 GB

// The type as the format spells it: "F32".
const char* type_name(Dtype dtype);
// The first sum of the checksum: of the header without it.
std::uint64_t header_sum(const nlohmann::json& header);

}  // namespace safetensors

// The header of a file's bytes. Throws std::invalid_argument, beginning with the context, if the
// file violates the format or its checksum is wrong.
SafetensorsHeader read_safetensors_header(std::span<const std::byte> bytes,
                                          const FileContext& context);

// Throws unless each byte of a BOOL is 0 or 1.
void check_booleans(std::span<const std::byte> bytes, const FileContext& context);

}  // namespace sotto
