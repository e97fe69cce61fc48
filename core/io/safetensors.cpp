#include "core/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/io/atomic_file.h"
#include "core/io/strict_json.h"
#include "core/io/utf8.h"
#include "core/io/xxh64.h"

namespace sotto {

namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::string_view metadata_key = "__metadata__";
constexpr std::size_t length_bytes = 8;
constexpr std::size_t max_header_bytes = 100'000'000;  // limit of the format's own library
constexpr std::size_t max_entries = 1'000'000;         // parsed, they take less than 1 GB
constexpr const char* checksum_key = "sotto.xxh64";

struct TypeName {
  Dtype dtype;
  std::string_view text;
};
constexpr TypeName type_names[] = {
    {Dtype::f64, "F64"}, {Dtype::f32, "F32"}, {Dtype::f16, "F16"}, {Dtype::bf16, "BF16"},
    {Dtype::i64, "I64"}, {Dtype::i32, "I32"}, {Dtype::u8, "U8"},   {Dtype::boolean, "BOOL"}};

// A tensor's entry in the header; `begin` and `end` count bytes from the end of the header.
struct Entry {
  std::string name;
  Dtype dtype;
  Shape shape;
  std::size_t begin;
  std::size_t end;
};

// The beginning of error texts: the file, and the tensor if there is one.
struct Context {
  std::string text;

  template <class... Args>
  void check(bool ok, fmt::format_string<Args...> what, Args&&... args) const {
    if (!ok) {
      fail(
          fmt::format("safetensors: {}: {}", text, fmt::format(what, std::forward<Args>(args)...)));
    }
  }
  Context tensor(const std::string& name) const { return {text + ": tensor " + excerpt(name)}; }
};

json parse_header(std::string_view text, const Context& context) {
  constexpr std::size_t deepest = 3;
  context.check(text.starts_with('{'), "the header does not begin with a brace");
  return parse_json_object(text, fmt::format("safetensors: {}: the header", context.text),
                           {.depth = deepest, .max_entries = max_entries});
}

// A list of integers from 0 to 2^63 - 1; throws for any other JSON value.
std::vector<std::int64_t> integers(const json& list, const char* what, const Context& context) {
  context.check(list.is_array(), "{} is not a list: {}", what, list.type_name());
  std::vector<std::int64_t> values;
  for (const json& item : list) {
    context.check(item.is_number_unsigned() && item.get<std::uint64_t>() <= INT64_MAX,
                  "{} holds {}, not an integer from 0 to 2^63 - 1", what, excerpt(item.dump()));
    values.push_back(item.get<std::int64_t>());
  }
  return values;
}

Dtype parse_dtype(const json& value, const Context& context) {
  context.check(value.is_string(), "dtype is not a string: {}", value.type_name());
  const auto& text = value.get_ref<const std::string&>();
  const auto* const found = std::find_if(std::begin(type_names), std::end(type_names),
                                         [&](const TypeName& t) { return t.text == text; });
  context.check(found != std::end(type_names),
                "dtype {} is not supported, only F64, F32, F16, BF16, I64, I32, U8 and BOOL",
                excerpt(text));
  return found->dtype;
}

Entry parse_entry(const std::string& name, const json& value, const Context& context) {
  context.check(value.is_object(), "not an object: {}", value.type_name());
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    context.check(value.contains(key), "{} is missing", key);
  }
  context.check(value.size() == 3, "{} keys where there should be dtype, shape and data_offsets",
                value.size());
  const Dtype dtype = parse_dtype(value["dtype"], context);
  const auto sizes = integers(value["shape"], "shape", context);
  context.check(sizes.size() <= max_rank, "{} axes where at most {} are supported", sizes.size(),
                max_rank);
  const Shape shape(sizes);
  const auto bytes = checked_bytes(shape, size_of(dtype));
  context.check(bytes.has_value(), "the shape {} has too many elements", shape);
  const auto offsets = integers(value["data_offsets"], "data_offsets", context);
  context.check(offsets.size() == 2, "{} data_offsets where there should be 2", offsets.size());
  context.check(offsets[0] <= offsets[1] && offsets[1] - offsets[0] == *bytes,
                "data_offsets {} to {} for the {} bytes of {} {}", offsets[0], offsets[1], *bytes,
                sotto::name(dtype), shape);
  return {name, dtype, shape, static_cast<std::size_t>(offsets[0]),
          static_cast<std::size_t>(offsets[1])};
}

std::map<std::string, std::string> parse_metadata(const json& value, const Context& context) {
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
std::vector<Entry> read_header(const json& header, std::map<std::string, std::string>& metadata,
                               const Context& context) {
  std::vector<Entry> entries;
  for (const auto& [key, value] : header.items()) {
    if (key == metadata_key) {
      metadata = parse_metadata(value, context);
    } else {
      entries.push_back(parse_entry(key, value, context.tensor(key)));
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  return entries;
}

// Checks that the tensors fill the data one after the other, without gaps or overlaps.
void check_places(const std::vector<Entry>& entries, std::size_t data_bytes,
                  const Context& context) {
  std::size_t place = 0;
  for (const Entry& entry : entries) {
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

std::uint64_t sum_of(const json& header) {
  const std::string text = header.dump();
  return xxh64(std::as_bytes(std::span(text)));
}

// Removes the checksum from the header, and returns whether there was one. Throws if it differs
// from the checksum of the file.
bool check_sum(json& header, const std::vector<Entry>& entries, std::span<const std::byte> data,
               const Context& context) {
  const std::optional<std::string> written = take_checksum(header);
  if (!written) return false;
  std::uint64_t sum = sum_of(header);
  for (const Entry& entry : entries)
    sum = xxh64(data.subspan(entry.begin, entry.end - entry.begin), sum);
  context.check(fmt::format("{:016x}", sum) == *written,
                "damaged: its checksum is {:016x}, but {} is {}", sum, checksum_key, *written);
  return true;
}

Tensor read_tensor(const Entry& entry, std::span<const std::byte> data, const Context& context) {
  const auto source = data.subspan(entry.begin, entry.end - entry.begin);
  if (entry.dtype == Dtype::boolean) {
    for (const std::byte b : source) {
      context.check(b <= std::byte{1}, "a BOOL has the value {}", std::to_integer<int>(b));
    }
  }
  Tensor y = Tensor::empty(entry.shape, entry.dtype);
  if (!source.empty()) std::memcpy(y.view().data, source.data(), source.size());
  return y;
}

}  // namespace

TensorFile parse_safetensors(std::span<const std::byte> bytes, const std::string& name) {
  const Context context{name};
  context.check(bytes.size() >= length_bytes, "{} bytes are too few for a header", bytes.size());
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  context.check(length <= max_header_bytes, "the header has {} bytes, more than {}", length,
                max_header_bytes);
  const auto rest = bytes.subspan(length_bytes);
  context.check(length <= rest.size(), "the header has {} bytes and the file {} after its length",
                length, rest.size());
  const auto data = rest.subspan(length);
  TensorFile file;
  json header = parse_header({reinterpret_cast<const char*>(rest.data()), length}, context);
  const std::vector<Entry> entries = read_header(header, file.metadata, context);
  check_places(entries, data.size(), context);
  file.verified = check_sum(header, entries, data, context);
  file.metadata.erase(checksum_key);
  for (const Entry& entry : entries) {
    file.tensors[entry.name] = read_tensor(entry, data, context.tensor(entry.name));
  }
  return file;
}

TensorFile load_safetensors(const std::string& path) {
  const std::string bytes = read_file(path);
  return parse_safetensors(std::as_bytes(std::span(bytes)), path);
}

namespace {

using Named = std::pair<std::string, Tensor>;

// The tensors on the CPU in the order of their data: by decreasing element size, so that each is
// aligned, then by name.
std::vector<Named> data_order(const TensorFile& file, const Context& context) {
  context.check(file.tensors.size() < max_entries, "{} tensors where less than {} are supported",
                file.tensors.size(), max_entries);
  context.check(!file.metadata.contains(checksum_key),
                "the metadata key {} is reserved for the checksum", checksum_key);
  std::vector<Named> order;
  for (const auto& [name, x] : file.tensors) {
    const Context here = context.tensor(name);
    here.check(name != metadata_key, "the name is reserved by the format");
    here.check(x.defined(), "not defined");
    order.emplace_back(name, x.to(cpu));
  }
  std::stable_sort(order.begin(), order.end(), [](const Named& a, const Named& b) {
    return size_of(a.second.dtype()) > size_of(b.second.dtype());
  });
  return order;
}

// Calls f with the bytes of the elements, row-major without gaps.
template <class F>
void with_elements(const Tensor& x, F&& f) {
  const auto* const first = static_cast<const std::byte*>(x.view().data);
  if (x.contiguous() || x.numel() == 0) return f(std::span(first, x.bytes()));
  const std::size_t width = size_of(x.dtype());
  std::vector<std::byte> packed;
  packed.reserve(x.bytes());
  for_each_offset(x.shape(), x.strides(), [&](std::int64_t offset) {
    const std::byte* const from = first + offset * static_cast<std::int64_t>(width);
    packed.insert(packed.end(), from, from + width);
  });
  f(std::span<const std::byte>(packed));
}

std::string_view text_of(Dtype dtype) {
  return std::find_if(std::begin(type_names), std::end(type_names),
                      [&](const TypeName& t) { return t.dtype == dtype; })
      ->text;
}

json header_json(const TensorFile& file, const std::vector<Named>& order) {
  json header = json::object();
  if (!file.metadata.empty()) header[std::string(metadata_key)] = file.metadata;
  std::size_t begin = 0;
  for (const auto& [name, x] : order) {
    const std::size_t end = begin + x.bytes();
    header[name] = {{"dtype", text_of(x.dtype())},
                    {"shape", std::vector(x.shape().begin(), x.shape().end())},
                    {"data_offsets", {begin, end}}};
    begin = end;
  }
  return header;
}

std::string header_text(const TensorFile& file, const std::vector<Named>& order,
                        const Context& context) {
  json header = header_json(file, order);
  std::string text;
  try {
    std::uint64_t sum = sum_of(header);
    for (const auto& [name, x] : order)
      with_elements(x, [&](std::span<const std::byte> bytes) { sum = xxh64(bytes, sum); });
    header[std::string(metadata_key)][checksum_key] = fmt::format("{:016x}", sum);
    text = header.dump();
  } catch (const json::exception& error) {
    context.check(false, "a name or a metadata entry is not UTF-8: {}", error.what());
  }
  constexpr std::size_t alignment = 8;
  text.resize((text.size() + alignment - 1) / alignment * alignment, ' ');
  context.check(text.size() <= max_header_bytes, "the header has {} bytes, more than {}",
                text.size(), max_header_bytes);
  return text;
}

}  // namespace

void save_safetensors(const std::string& path, const TensorFile& file) {
  const Context context{path};
  const auto order = data_order(file, context);
  const std::string header = header_text(file, order, context);
  const bool secret = file.metadata.contains(secret_key);
  const auto write = [&](FileWriter& writer) {
    const std::uint64_t length = header.size();
    writer.write(std::as_bytes(std::span(&length, 1)));
    writer.write(header);
    for (const auto& [name, x] : order)
      with_elements(x, [&](std::span<const std::byte> bytes) { writer.write(bytes); });
  };
  write_file_atomically(path, write, FileKind::tensors,
                        secret ? Readers::owner : Readers::as_usual);
}

}  // namespace sotto
