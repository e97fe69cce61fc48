#include "core/io/weights_file.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "core/io/safetensors_header.h"
#include "core/io/weights/weights_formats.h"

namespace sotto {

namespace {

// True if the elements lie without gaps; the strides of axes of size 1 are of no effect.
bool row_major(const Shape& shape, const Shape& strides) {
  const Shape wanted = contiguous_strides(shape);
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] != 1 && strides[axis] != wanted[axis]) return false;
  }
  return true;
}

bool aligned(const void* address, std::size_t width) {
  return reinterpret_cast<std::uintptr_t>(address) % width == 0;
}

// A copy of elements that lie at any address.
Tensor row_major_copy(const std::byte* first, const StoredTensor& stored) {
  Tensor y = Tensor::empty(stored.shape, *stored.dtype);
  auto* to = static_cast<std::byte*>(y.view().data);
  if (!stored.strides || row_major(stored.shape, *stored.strides)) {
    std::memcpy(to, first, y.bytes());
    return y;
  }
  const std::size_t width = size_of(*stored.dtype);
  for_each_offset(stored.shape, *stored.strides, [&](std::int64_t offset) {
    std::memcpy(to, first + offset * static_cast<std::int64_t>(width), width);
    to += width;
  });
  return y;
}

Tensor elements(const StoredTensor& stored, const FileContext& context) {
  if (stored.shape.numel() == 0) return Tensor::empty(stored.shape, *stored.dtype);
  std::shared_ptr<void> first = stored.first();
  const bool shared = (!stored.strides || row_major(stored.shape, *stored.strides)) &&
                      aligned(first.get(), size_of(*stored.dtype));
  Tensor y = shared ? Tensor::from_block(std::move(first), stored.shape, *stored.dtype)
                    : row_major_copy(static_cast<const std::byte*>(first.get()), stored);
  if (stored.dtype == Dtype::boolean) {
    check_booleans({static_cast<const std::byte*>(y.view().data), y.bytes()}, context);
  }
  return y;
}

}  // namespace

WeightsFile::WeightsFile(std::string path, std::shared_ptr<const Contents> contents)
    : path_(std::move(path)), contents_(std::move(contents)) {}

const std::map<std::string, StoredTensor>& WeightsFile::tensors() const {
  return contents_->tensors;
}

const nlohmann::json& WeightsFile::metadata() const { return contents_->metadata; }

const std::vector<std::string>& WeightsFile::left_out() const { return contents_->left_out; }

const StoredTensor& WeightsFile::stored(const std::string& name) const {
  const auto found = tensors().find(name);
  check(found != tensors().end(), "weights: {}: there is no tensor {}", path_, excerpt(name));
  return found->second;
}

Tensor WeightsFile::tensor(const std::string& name) const {
  const StoredTensor& x = stored(name);
  const FileContext context = FileContext{"weights: " + path_}.tensor(name);
  context.check(!x.format, "its numbers are in blocks of {}, not in a type of tensors", x.type);
  context.check(x.dtype.has_value(), "the type {} is not supported", excerpt(x.type));
  return elements(x, context);
}

std::optional<BlockMatrix> WeightsFile::blocks(const std::string& name) const {
  const StoredTensor& x = stored(name);
  if (!x.format) return std::nullopt;
  const std::int64_t columns = x.shape.back();  // one block at least
  const std::int64_t bytes = row_bytes("weights", *x.format, columns);
  const Shape matrix{x.shape.numel() / columns, columns};
  return BlockMatrix{*x.format, matrix,
                     Tensor::from_block(x.first(), {matrix[0], bytes}, Dtype::u8)};
}

WeightsFile open_weights(const std::string& path) {
  return {path, std::make_shared<WeightsFile::Contents>(weights::read_path(path))};
}

}  // namespace sotto
