// The records are those of PyTorch's torch/_utils.py and torch/serialization.py.
#include "core/io/weights/torch_tensors.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace sotto::weights {

namespace {

using Kind = Pickled::Kind;

// An element type: the class of its storages, and the name of it alone.
struct ElementType {
  const char* storage;  // "": has none of its own
  const char* name;
  std::int64_t width;
  std::optional<Dtype> dtype = {};
};

constexpr ElementType element_types[] = {
    {"DoubleStorage", "float64", 8, Dtype::f64},
    {"FloatStorage", "float32", 4, Dtype::f32},
    {"HalfStorage", "float16", 2, Dtype::f16},
    {"BFloat16Storage", "bfloat16", 2, Dtype::bf16},
    {"LongStorage", "int64", 8, Dtype::i64},
    {"IntStorage", "int32", 4, Dtype::i32},
    {"ByteStorage", "uint8", 1, Dtype::u8},
    {"BoolStorage", "bool", 1, Dtype::boolean},
    {"UntypedStorage", "", 1},
    {"ShortStorage", "int16", 2},
    {"CharStorage", "int8", 1},
    {"ComplexFloatStorage", "complex64", 8},
    {"ComplexDoubleStorage", "complex128", 16},
    {"QInt8Storage", "qint8", 1},
    {"QUInt8Storage", "quint8", 1},
    {"QInt32Storage", "qint32", 4},
    {"", "uint16", 2},
    {"", "uint32", 4},
    {"", "uint64", 8},
    {"", "float8_e4m3fn", 1},
    {"", "float8_e4m3fnuz", 1},
    {"", "float8_e5m2", 1},
    {"", "float8_e5m2fnuz", 1},
    {"", "float8_e8m0fnu", 1},
};

constexpr std::string_view other_globals[] = {
    "collections.OrderedDict",
    "torch.Size",
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch.nn.parameter.Parameter",  // of PyTorch's first versions
};

// The type whose storages, or whose own name, is that of a global.
const ElementType* element_type(std::string_view global) {
  for (const std::string_view module : {"torch.storage.", "torch.cuda.", "torch."}) {
    if (!global.starts_with(module)) continue;
    const std::string_view name = global.substr(module.size());
    for (const ElementType& type : element_types) {
      if (!name.empty() && (name == type.storage || name == type.name)) return &type;
    }
  }
  return nullptr;
}

bool is_parameter(const Pickled& value) {
  return value.calls("torch.nn.parameter.Parameter") ||
         (value.is(Kind::object) && value.text.starts_with("torch._utils._rebuild_parameter"));
}

// The arguments of torch._utils._rebuild_tensor_v2.
struct Record {
  const Pickled* storage;
  std::int64_t offset;
  std::vector<std::int64_t> sizes, strides;
  const ElementType* type;  // of the third version alone
};

std::vector<std::int64_t> integers(const Pickled& value, const char* what,
                                   const FileContext& context) {
  context.check(value.is(Kind::list), "its {} are no tuple", what);
  std::vector<std::int64_t> numbers;
  for (const Pickled* item : value.items) {
    context.check(item->is(Kind::integer) && item->text.empty() && item->number >= 0,
                  "one of its {} is no integer from 0 to 2^63 - 1", what);
    numbers.push_back(item->number);
  }
  context.check(numbers.size() <= max_rank, "{} axes where at most {} are supported",
                numbers.size(), max_rank);
  return numbers;
}

// The tensor that a parameter is, or the tensor itself.
const Pickled& data_of(const Pickled& value, const FileContext& context) {
  if (!is_parameter(value)) return value;
  context.check(
      !value.items.empty() && !is_parameter(*value.items[0]) && is_tensor(*value.items[0]),
      "a parameter of no tensor");
  return *value.items[0];
}

Record read_record(const Pickled& value, const FileContext& context) {
  constexpr std::size_t least = 4;                         // storage, offset, size, stride
  constexpr std::size_t dtype_at = 6, metadata_at_v2 = 6;  // behind requires_grad and hooks
  const std::vector<Pickled*>& given = value.items;
  context.check(given.size() >= least, "{} values where a tensor has {}", given.size(), least);
  const bool third = value.text.ends_with("_v3");
  const std::size_t metadata = metadata_at_v2 + (third ? 1 : 0);
  context.check(given.size() <= metadata || given[metadata]->items.empty(),
                "its numbers are conjugated or negated later, which is not supported");
  context.check(given[0]->is(Kind::persistent), "its storage is none");
  const bool counts = given[1]->is(Kind::integer) && given[1]->text.empty();
  context.check(counts && given[1]->number >= 0, "its offset is no integer from 0 to 2^63 - 1");
  Record record{given[0], given[1]->number, integers(*given[2], "sizes", context),
                integers(*given[3], "strides", context), nullptr};
  context.check(record.sizes.size() == record.strides.size(), "{} sizes and {} strides",
                record.sizes.size(), record.strides.size());
  if (third) {
    context.check(given.size() > dtype_at && given[dtype_at]->is(Kind::global), "it has no dtype");
    record.type = element_type(given[dtype_at]->text);
    context.check(record.type != nullptr, "{} is no dtype", excerpt(given[dtype_at]->text));
  }
  return record;
}

// The elements from the first to the last, both included; nullopt above 2^63 - 1.
std::optional<std::int64_t> reach(const Record& record) {
  std::int64_t last = record.offset;
  for (std::size_t axis = 0; axis < record.sizes.size(); ++axis) {
    if (record.sizes[axis] == 0) return 0;
    std::int64_t step = 0;
    if (__builtin_mul_overflow(record.sizes[axis] - 1, record.strides[axis], &step) ||
        __builtin_add_overflow(last, step, &last))
      return std::nullopt;
  }
  if (__builtin_add_overflow(last, 1, &last)) return std::nullopt;
  return last;
}

// The parts of the value by which a storage is known: ("storage", class, key, place, count).
std::pair<std::string, TorchStorage> parse_storage(const Pickled& value,
                                                   const FileContext& context) {
  const std::vector<Pickled*>& parts = value.items[0]->items;
  constexpr std::size_t usual = 5;
  context.check(value.items[0]->is(Kind::list) && parts.size() >= usual &&
                    parts[0]->text == "storage" && parts[1]->is(Kind::global),
                "a value outside of the pickle is no storage");
  const ElementType* const type = element_type(parts[1]->text);
  const bool storage = type != nullptr && parts[1]->text.ends_with("Storage");
  context.check(storage, "{} is no class of storages", excerpt(parts[1]->text));
  context.check(parts[2]->is(Kind::text) && parts[4]->is(Kind::integer) && parts[4]->text.empty(),
                "the key or the size of a storage has another type");
  context.check(parts.size() == usual || parts[usual]->is(Kind::none),
                "the storage {} is a view of another, which is not supported",
                excerpt(parts[2]->text));
  const std::int64_t count = parts[4]->number;
  context.check(count >= 0 && count <= INT64_MAX / type->width, "the storage {} has {} elements",
                excerpt(parts[2]->text), count);
  return {parts[2]->text, {type->storage, type->dtype, type->width, count}};
}

}  // namespace

bool known_to_torch(std::string_view name) {
  return std::find(std::begin(other_globals), std::end(other_globals), name) !=
             std::end(other_globals) ||
         element_type(name) != nullptr;
}

TorchStorages storages_of(const Pickle& pickle, const FileContext& context) {
  TorchStorages storages;
  for (const Pickled* value : pickle.persistents) {
    auto [key, storage] = parse_storage(*value, context);
    const auto [place, added] = storages.try_emplace(key, std::make_shared<TorchStorage>(storage));
    const TorchStorage& known = *place->second;
    context.check(known.type == storage.type && known.count == storage.count,
                  "the storage {} has {} elements in {}, and {} in {}", excerpt(key), known.count,
                  known.type, storage.count, storage.type);
  }
  return storages;
}

bool is_tensor(const Pickled& value) { return value.is(Kind::object); }

StoredTensor read_tensor(const Pickled& value, const TorchStorages& storages,
                         const FileContext& context) {
  const Record record = read_record(data_of(value, context), context);
  const std::string key = parse_storage(*record.storage, context).first;
  const std::shared_ptr<TorchStorage> storage = storages.at(key);
  const std::int64_t width = record.type ? record.type->width : storage->width;
  StoredTensor x{.shape = Shape(record.sizes),
                 .type = record.type ? record.type->name : storage->type,
                 .dtype = record.type ? record.type->dtype : storage->dtype,
                 .strides = Shape(record.strides)};
  const auto bytes = checked_bytes(x.shape, static_cast<std::size_t>(width));
  const std::optional<std::int64_t> last = reach(record);
  context.check(bytes.has_value() && last && *last <= storage->bytes() / width,
                "sizes {}, strides {} and offset {} reach beyond the storage {} of {} bytes",
                x.shape, *x.strides, record.offset, excerpt(key), storage->bytes());
  storage->used = std::max(storage->used, *last * width);
  constexpr std::int64_t always = 1 << 26;  // an expanded tensor may have more than its storage
  context.check(*bytes <= std::max(always, storage->bytes()),
                "{} bytes by elements that repeat, of a storage of {}", *bytes, storage->bytes());
  x.first = [storage, begin = record.offset * width] {
    const std::shared_ptr<void> block = storage->first();
    return std::shared_ptr<void>(block, static_cast<std::byte*>(block.get()) + begin);
  };
  return x;
}

}  // namespace sotto::weights
