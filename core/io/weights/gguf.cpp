// The format of GGUF (ggml's page on it). All numbers are little-endian; the shape's last size is
// given first.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "core/io/weights/byte_reader.h"
#include "core/io/weights/gguf_metadata.h"
#include "core/io/weights/weights_formats.h"

namespace sotto::weights {

namespace {

constexpr std::size_t max_tensors = 1'000'000;

// A type of ggml, by its number there.
struct TensorType {
  std::uint32_t number;
  const char* name;
  std::optional<Dtype> dtype = {};
  std::optional<BlockFormat> format = {};
  std::size_t width = 0;  // bytes of a number of a type that tensors do not have; 0: not known
};

constexpr TensorType types[] = {
    {0, "F32", Dtype::f32},
    {1, "F16", Dtype::f16},
    {2, "Q4_0", {}, BlockFormat::q4_0},
    {3, "Q4_1", {}, BlockFormat::q4_1},
    {6, "Q5_0"},
    {7, "Q5_1"},
    {8, "Q8_0", {}, BlockFormat::q8_0},
    {9, "Q8_1"},
    {10, "Q2_K"},
    {11, "Q3_K"},
    {12, "Q4_K", {}, BlockFormat::q4_k},
    {13, "Q5_K"},
    {14, "Q6_K", {}, BlockFormat::q6_k},
    {15, "Q8_K"},
    {16, "IQ2_XXS"},
    {17, "IQ2_XS"},
    {18, "IQ3_XXS"},
    {19, "IQ1_S"},
    {20, "IQ4_NL"},
    {21, "IQ3_S"},
    {22, "IQ2_S"},
    {23, "IQ4_XS"},
    {24, "I8", {}, {}, 1},
    {25, "I16", {}, {}, 2},
    {26, "I32", Dtype::i32},
    {27, "I64", Dtype::i64},
    {28, "F64", Dtype::f64},
    {29, "IQ1_M"},
    {30, "BF16", Dtype::bf16},
    {34, "TQ1_0"},
    {35, "TQ2_0"},
    {39, "MXFP4"},
};

// Where a tensor lies, from the beginning of the file. The end is 0 if the type is not supported.
struct Extent {
  std::size_t begin;
  std::size_t end;
  std::string name;
};

// Fills in the type, and gives the bytes of a number: 0 in blocks and of a type that is not known.
std::size_t read_type(StoredTensor& x, std::uint32_t number) {
  const auto* const found = std::find_if(std::begin(types), std::end(types),
                                         [&](const TensorType& t) { return t.number == number; });
  if (found == std::end(types)) {
    x.type = fmt::format("number {}", number);
    return 0;
  }
  x.type = found->name;
  x.dtype = found->dtype;
  x.format = found->format;
  return x.dtype ? size_of(*x.dtype) : found->width;
}

Shape read_shape(ByteReader& reader, const FileContext& context) {
  const auto rank = reader.number<std::uint32_t>();
  context.check(rank <= max_rank, "{} axes where at most {} are supported", rank, max_rank);
  Shape shape = Shape::filled(static_cast<int>(rank), 0);
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    const auto size = reader.number<std::uint64_t>();
    context.check(size > 0 && size <= std::numeric_limits<std::int64_t>::max(),
                  "the size of axis {} is {}", axis, size);
    shape[axis] = static_cast<std::int64_t>(size);
  }
  return shape;
}

// The bytes of the elements, of which each has `width`; 1 of a type that is not supported.
std::size_t stored_bytes(const StoredTensor& x, std::size_t width, const FileContext& context) {
  // No block has more bytes than its numbers have in f32.
  const auto widest = checked_bytes(x.shape, width > 0 ? width : sizeof(float));
  context.check(widest.has_value(), "the shape {} has too many elements", x.shape);
  if (!x.format) return width > 0 ? static_cast<std::size_t>(*widest) : 1;
  context.check(x.shape.rank() > 0, "a scalar of type {}", x.type);
  const std::int64_t columns = x.shape.back();
  const std::int64_t rows = x.shape.numel() / columns;
  return static_cast<std::size_t>(rows * row_bytes(context.text.c_str(), *x.format, columns));
}

// Throws if two tensors share bytes.
void check_extents(std::vector<Extent> extents, const FileContext& context) {
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  for (std::size_t k = 1; k < extents.size(); ++k) {
    context.tensor(extents[k].name)
        .check(extents[k].begin >= extents[k - 1].end,
               "begins at byte {}, but tensor {} ends at byte {}", extents[k].begin,
               excerpt(extents[k - 1].name), extents[k - 1].end);
  }
}

std::uint64_t alignment_of(const nlohmann::json& metadata, const FileContext& context) {
  constexpr std::uint64_t usual = 32;
  constexpr std::uint64_t largest = 1 << 20;
  const auto found = metadata.find("general.alignment");
  if (found == metadata.end()) return usual;
  const std::uint64_t alignment = found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
  context.check(std::has_single_bit(alignment) && alignment <= largest,
                "general.alignment is {}, not a power of 2 up to {}", excerpt(found->dump()),
                largest);
  return alignment;
}

// Throws unless the file begins as one of version 2 or 3.
void check_version(ByteReader& reader) {
  const FileContext& context = reader.context();
  constexpr std::uint32_t magic_bytes = 4;
  reader.text(magic_bytes);
  const auto version = reader.number<std::uint32_t>();
  constexpr std::uint32_t low_half = 0xffff;
  context.check((version & low_half) != 0, "the file is big-endian");
  context.check(version == 2 || version == 3, "version {} is not supported, only 2 and 3", version);
}

struct Listed {
  std::string name;
  StoredTensor tensor;
  std::size_t width;     // bytes of a number, as read_type() gives them
  std::uint64_t offset;  // from the beginning of the data
};

std::vector<Listed> read_list(ByteReader& reader, std::uint64_t count) {
  const FileContext& context = reader.context();
  constexpr std::size_t least = 8 + 1 + 4 + 4 + 8;  // a name, the rank, the type, the offset
  context.check(count <= max_tensors && count <= reader.left() / least,
                "{} tensors, where {} bytes are left and {} tensors are supported", count,
                reader.left(), max_tensors);
  std::vector<Listed> list(count);
  for (Listed& x : list) {
    x.name = gguf_name(reader, "a tensor's name");
    x.tensor.shape = read_shape(reader, context.tensor(x.name));
    x.width = read_type(x.tensor, reader.number<std::uint32_t>());
    x.offset = reader.number<std::uint64_t>();
  }
  return list;
}

}  // namespace

WeightsFile::Contents read_gguf(const MappedFile& file, const FileContext& context) {
  ByteReader reader(file.bytes(), context);
  check_version(reader);
  const auto tensors = reader.number<std::uint64_t>();
  const auto keys = reader.number<std::uint64_t>();
  WeightsFile::Contents contents{.metadata = gguf_metadata(reader, keys)};
  context.check(contents.metadata.value("split.count", nlohmann::json(1)) <= 1,
                "one of several files, as split.count says, which are not supported");
  const std::uint64_t alignment = alignment_of(contents.metadata, context);
  std::vector<Listed> list = read_list(reader, tensors);
  const std::size_t data = (reader.place() + alignment - 1) / alignment * alignment;
  const std::size_t data_bytes = file.bytes().size() - std::min(data, file.bytes().size());
  std::vector<Extent> extents;
  for (Listed& x : list) {
    const FileContext here = context.tensor(x.name);
    const std::size_t bytes = stored_bytes(x.tensor, x.width, here);
    here.check(x.offset % alignment == 0, "the offset {} is no multiple of {}", x.offset,
               alignment);
    here.check(x.offset <= data_bytes && bytes <= data_bytes - x.offset,
               "{} bytes at {}, where the data has {}", bytes, x.offset, data_bytes);
    extents.push_back({data + x.offset, data + x.offset + bytes, x.name});
    x.tensor.first = [file, place = data + x.offset] { return file.at(place); };
    here.check(contents.tensors.emplace(x.name, std::move(x.tensor)).second,
               "the name occurs twice");
  }
  check_extents(std::move(extents), context);
  return contents;
}

}  // namespace sotto::weights
