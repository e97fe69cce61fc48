#include "core/io/safetensors_header.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/io/strict_json.h"
#include "core/io/xxh64.h"

namespace sotto {

namespace {

using nlohmann::json;
using namespace safetensors;

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::size_t length_bytes = 8;

struct TypeName {
  Dtype dtype;
  const char* text;
};
constexpr TypeName type_names[] = {
    {Dtype::f64, "F64"}, {Dtype::f32, "F32"}, {Dtype::f16, "F16"}, {Dtype::bf16, "BF16"},
    {Dtype::i64, "I64"}, {Dtype::i32, "I32"}, {Dtype::u8, "U8"},   {Dtype::boolean, "BOOL"}};

json parse_header(std::string_view text, const FileContext& context) {
  constexpr std::size_t deepest = 3;
  context.check(text.starts_with('{'), "the header does not begin with a brace");
  return parse_json_object(text, context.text + ": the header",
                           {.depth = deepest, .max_entries = max_entries});
}

// A list of integers from 0 to 2^63 - 1; throws for any other JSON value.
std::vector<std::int64_t> integers(const json& list, const char* what, const FileContext& context) {
  context.check(list.is_array(), "{} is not a list: {}", what, list.type_name());
  std::vector<std::int64_t> values;
  for (const json& item : list) {
    context.check(item.is_number_unsigned() && item.get<std::uint64_t>() <= INT64_MAX,
                  "{} holds {}, not an integer from 0 to 2^63 - 1", what, excerpt(item.dump()));
    values.push_back(item.get<std::int64_t>());
  }
  return values;
}

const std::string& parse_type(const json& value, const FileContext& context) {
  context.check(value.is_string(), "dtype is not a string: {}", value.type_name());
  return value.get_ref<const std::string&>();
}

std::optional<Dtype> dtype_named(const std::string& type) {
  const auto* const found = std::find_if(std::begin(type_names), std::end(type_names),
                                         [&](const TypeName& t) { return t.text == type; });
  if (found == std::end(type_names)) return std::nullopt;
  return found->dtype;
}

// The begin and the end of a tensor. The bytes of a type that is not supported are not compared.
std::pair<std::size_t, std::size_t> parse_offsets(const json& value, const SafetensorsEntry& entry,
                                                  const FileContext& context) {
  const auto bytes = checked_bytes(entry.shape, entry.dtype ? size_of(*entry.dtype) : 1);
  context.check(bytes.has_value(), "the shape {} has too many elements", entry.shape);
  const auto offsets = integers(value, "data_offsets", context);
  context.check(offsets.size() == 2, "{} data_offsets where there should be 2", offsets.size());
  context.check(offsets[0] <= offsets[1] && (!entry.dtype || offsets[1] - offsets[0] == *bytes),
                "data_offsets {} to {} for the {} bytes of {} {}", offsets[0], offsets[1], *bytes,
                entry.dtype ? sotto::name(*entry.dtype) : excerpt(entry.type), entry.shape);
  return {static_cast<std::size_t>(offsets[0]), static_cast<std::size_t>(offsets[1])};
}

SafetensorsEntry parse_entry(const std::string& name, const json& value,
                             const FileContext& context) {
  context.check(value.is_object(), "not an object: {}", value.type_name());
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    context.check(value.contains(key), "{} is missing", key);
  }
  context.check(value.size() == 3, "{} keys where there should be dtype, shape and data_offsets",
                value.size());
  SafetensorsEntry entry{.name = name, .type = parse_type(value["dtype"], context)};
  entry.dtype = dtype_named(entry.type);
  const auto sizes = integers(value["shape"], "shape", context);
  context.check(sizes.size() <= max_rank, "{} axes where at most {} are supported", sizes.size(),
                max_rank);
  entry.shape = Shape(sizes);
  std::tie(entry.begin, entry.end) = parse_offsets(value["data_offsets"], entry, context);
  return entry;
}

std::map<std::string, std::string> parse_metadata(const json& value, const FileContext& context) {
  context.check(value.is_object(), "{} is not an object: {}", metadata_key, value.type_name());
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.items()) {
    context.check(text.is_string(), "{} {} is not a string: {}", metadata_key, key,
                  text.type_name());
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

// The tensors in the order of their data.
std::vector<SafetensorsEntry> read_entries(const json& header,
                                           std::map<std::string, std::string>& metadata,
                                           const FileContext& context) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [key, value] : header.items()) {
    if (key == metadata_key) {
      metadata = parse_metadata(value, context);
    } else {
      entries.push_back(parse_entry(key, value, context.tensor(key)));
    }
  }
  std::sort(entries.begin(), entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
            });
  return entries;
}

// Checks that the tensors fill the data one after the other, without gaps or overlaps.
void check_places(const std::vector<SafetensorsEntry>& entries, std::size_t data_bytes,
                  const FileContext& context) {
  std::size_t place = 0;
  for (const SafetensorsEntry& entry : entries) {
    context.tensor(entry.name)
        .check(entry.begin == place, "begins at byte {} but the tensor before it ends at {}",
               entry.begin, place);
    context.tensor(entry.name)
        .check(entry.end <= data_bytes, "ends at byte {} of {}", entry.end, data_bytes);
    place = entry.end;
  }
  context.check(place == data_bytes, "the tensors end at byte {} of {}", place, data_bytes);
}

// Removes the checksum from the header, and the metadata if they are empty then.
std::optional<std::string> take_checksum(json& header) {
  const auto metadata = header.find(metadata_key);
  if (metadata == header.end() || !metadata->contains(checksum_key)) return std::nullopt;
  auto written = (*metadata)[checksum_key].get<std::string>();
  metadata->erase(checksum_key);
  if (metadata->empty()) header.erase(metadata);
  return written;
}

// Removes the checksum from the header, and returns whether there was one. Throws if it differs
// from the checksum of the file.
bool check_sum(json& header, const std::vector<SafetensorsEntry>& entries,
               std::span<const std::byte> data, const FileContext& context) {
  const std::optional<std::string> written = take_checksum(header);
  if (!written) return false;
  std::uint64_t sum = header_sum(header);
  for (const SafetensorsEntry& entry : entries)
    sum = xxh64(data.subspan(entry.begin, entry.end - entry.begin), sum);
  context.check(fmt::format("{:016x}", sum) == *written,
                "damaged: its checksum is {:016x}, but {} is {}", sum, checksum_key, *written);
  return true;
}

}  // namespace

namespace safetensors {

const char* type_name(Dtype dtype) {
  return std::find_if(std::begin(type_names), std::end(type_names),
                      [&](const TypeName& t) { return t.dtype == dtype; })
      ->text;
}

std::uint64_t header_sum(const json& header) {
  const std::string text = header.dump();
  return xxh64(std::as_bytes(std::span(text)));
}

}  // namespace safetensors

SafetensorsHeader read_safetensors_header(std::span<const std::byte> bytes,
                                          const FileContext& context) {
  context.check(bytes.size() >= length_bytes, "{} bytes are too few for a header", bytes.size());
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  context.check(length <= max_header_bytes, "the header has {} bytes, more than {}", length,
                max_header_bytes);
  const auto rest = bytes.subspan(length_bytes);
  context.check(length <= rest.size(), "the header has {} bytes and the file {} after its length",
                length, rest.size());
  SafetensorsHeader header;
  header.data = rest.subspan(length);
  header.json = parse_header({reinterpret_cast<const char*>(rest.data()), length}, context);
  header.entries = read_entries(header.json, header.metadata, context);
  check_places(header.entries, header.data.size(), context);
  header.verified = check_sum(header.json, header.entries, header.data, context);
  header.metadata.erase(checksum_key);
  return header;
}

void check_booleans(std::span<const std::byte> bytes, const FileContext& context) {
  const auto wrong =
      std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
  if (wrong != bytes.end()) context.fail("a BOOL has the value {}", std::to_integer<int>(*wrong));
}

}  // namespace sotto
