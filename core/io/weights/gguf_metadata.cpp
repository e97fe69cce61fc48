#include "core/io/weights/gguf_metadata.h"

#include <utility>

namespace sotto::weights {

namespace {

using nlohmann::json;

constexpr std::size_t max_values = 10'000'000;
constexpr int deepest = 4;  // arrays within each other

// The numbers of the specification of GGUF.
enum class ValueType : std::uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  text,
  array,
  u64,
  i64,
  f64
};

// The fewest bytes of a value.
std::size_t least_bytes(ValueType type) {
  switch (type) {
    case ValueType::u8:
    case ValueType::i8:
    case ValueType::boolean: return 1;
    case ValueType::u16:
    case ValueType::i16: return 2;
    case ValueType::u32:
    case ValueType::i32:
    case ValueType::f32: return 4;
    default: return 8;
  }
}

// Reads values, and counts them.
class ValueReader {
 public:
  explicit ValueReader(ByteReader& reader) : reader_(reader) {}

  json value(ValueType type, int depth = 0) {
    switch (type) {
      case ValueType::u8: return reader_.number<std::uint8_t>();
      case ValueType::i8: return reader_.number<std::int8_t>();
      case ValueType::u16: return reader_.number<std::uint16_t>();
      case ValueType::i16: return reader_.number<std::int16_t>();
      case ValueType::u32: return reader_.number<std::uint32_t>();
      case ValueType::i32: return reader_.number<std::int32_t>();
      case ValueType::u64: return reader_.number<std::uint64_t>();
      case ValueType::i64: return reader_.number<std::int64_t>();
      case ValueType::f32: return reader_.number<float>();
      case ValueType::f64: return reader_.number<double>();
      case ValueType::boolean: return reader_.number<std::uint8_t>() != 0;
      case ValueType::text: return std::string(gguf_text(reader_));
      case ValueType::array: return array(depth + 1);
    }
    return {};  // type() gives no other
  }

  ValueType type() {
    const auto number = reader_.number<std::uint32_t>();
    reader_.context().check(number <= static_cast<std::uint32_t>(ValueType::f64),
                            "{} is no type of a value", number);
    return static_cast<ValueType>(number);
  }

 private:
  json array(int depth) {
    const FileContext& context = reader_.context();
    context.check(depth <= deepest, "arrays are nested more than {} deep", deepest);
    const ValueType of = type();
    const auto count = reader_.number<std::uint64_t>();
    context.check(count <= reader_.left() / least_bytes(of),
                  "an array of {} values, where {} bytes are left", count, reader_.left());
    values_ += count;
    context.check(values_ <= max_values, "the arrays hold more than {} values", max_values);
    json::array_t values;
    values.reserve(count);
    for (std::uint64_t k = 0; k < count; ++k) values.push_back(value(of, depth));
    return values;
  }

  ByteReader& reader_;
  std::size_t values_ = 0;
};

}  // namespace

std::string_view gguf_text(ByteReader& reader) {
  return reader.text(reader.number<std::uint64_t>());
}

std::string gguf_name(ByteReader& reader, const char* what) {
  const std::string_view name = gguf_text(reader);
  reader.context().check(!name.empty() && valid_utf8(name) && name.find('\0') == name.npos,
                         "{} is no name: \"{}\"", what, excerpt(name));
  return std::string(name);
}

json gguf_metadata(ByteReader& reader, std::uint64_t count) {
  constexpr std::size_t least = 8 + 4 + 1;  // a key's length, the type, a value
  reader.context().check(count <= reader.left() / least, "{} keys, where {} bytes are left", count,
                         reader.left());
  ValueReader values(reader);
  json metadata = json::object();
  for (std::uint64_t k = 0; k < count; ++k) {
    const std::string key = gguf_name(reader, "a key");
    reader.context().check(!metadata.contains(key), "the key {} occurs twice", excerpt(key));
    const ValueType type = values.type();
    metadata[key] = values.value(type);
  }
  return metadata;
}

}  // namespace sotto::weights
