#include "core/io/safetensors.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/io/atomic_file.h"
#include "core/io/safetensors_header.h"
#include "core/io/xxh64.h"

namespace sotto {

namespace {

using nlohmann::json;
using namespace safetensors;

FileContext context_of(const std::string& name) { return {"safetensors: " + name}; }

Tensor read_tensor(const SafetensorsEntry& entry, std::span<const std::byte> data,
                   const FileContext& context) {
  const auto source = data.subspan(entry.begin, entry.end - entry.begin);
  if (entry.dtype == Dtype::boolean) check_booleans(source, context);
  Tensor y = Tensor::empty(entry.shape, *entry.dtype);
  if (!source.empty()) std::memcpy(y.view().data, source.data(), source.size());
  return y;
}

}  // namespace

TensorFile parse_safetensors(std::span<const std::byte> bytes, const std::string& name) {
  const FileContext context = context_of(name);
  SafetensorsHeader header = read_safetensors_header(bytes, context);
  for (const SafetensorsEntry& entry : header.entries) {
    context.tensor(entry.name)
        .check(entry.dtype.has_value(),
               "dtype {} is not supported, only F64, F32, F16, BF16, I64, I32, U8 and BOOL",
               excerpt(entry.type));
  }
  TensorFile file{.metadata = std::move(header.metadata), .verified = header.verified};
  for (const SafetensorsEntry& entry : header.entries) {
    file.tensors[entry.name] = read_tensor(entry, header.data, context.tensor(entry.name));
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
std::vector<Named> data_order(const TensorFile& file, const FileContext& context) {
  context.check(file.tensors.size() < max_entries, "{} tensors where less than {} are supported",
                file.tensors.size(), max_entries);
  context.check(!file.metadata.contains(checksum_key),
                "the metadata key {} is reserved for the checksum", checksum_key);
  std::vector<Named> order;
  for (const auto& [name, x] : file.tensors) {
    const FileContext here = context.tensor(name);
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

json header_json(const TensorFile& file, const std::vector<Named>& order) {
  json header = json::object();
  if (!file.metadata.empty()) header[metadata_key] = file.metadata;
  std::size_t begin = 0;
  for (const auto& [name, x] : order) {
    const std::size_t end = begin + x.bytes();
    header[name] = {{"dtype", type_name(x.dtype())},
                    {"shape", std::vector(x.shape().begin(), x.shape().end())},
                    {"data_offsets", {begin, end}}};
    begin = end;
  }
  return header;
}

std::string header_text(const TensorFile& file, const std::vector<Named>& order,
                        const FileContext& context) {
  json header = header_json(file, order);
  std::string text;
  try {
    std::uint64_t sum = header_sum(header);
    for (const auto& [name, x] : order)
      with_elements(x, [&](std::span<const std::byte> bytes) { sum = xxh64(bytes, sum); });
    header[metadata_key][checksum_key] = fmt::format("{:016x}", sum);
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
  const FileContext context = context_of(path);
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
