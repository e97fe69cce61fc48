// The keys and values at the beginning of a GGUF file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "core/io/weights/byte_reader.h"

namespace sotto::weights {

// A text with its length, u64, before it.
std::string_view gguf_text(ByteReader& reader);
// A text that is a name: UTF-8, not empty, without a zero byte. `what` is the noun for it.
std::string gguf_name(ByteReader& reader, const char* what);

// `count` keys with their values, numbers as JSON's, arrays as arrays. Texts are the file's bytes.
// Throws std::invalid_argument for duplicate keys, and for more than 10 million values.
nlohmann::json gguf_metadata(ByteReader& reader, std::uint64_t count);

}  // namespace sotto::weights
