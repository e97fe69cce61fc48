#include "core/tensor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/allocator/allocation_pool.h"
#include "core/cuda/capture.h"
#include "core/cuda/cuda_library.h"

namespace sotto {

namespace {

MemoryLabel workspace_label() {
  MemoryLabel label = memory_label();
  label.kind = MemoryKind::workspace;
  return label;
}

}  // namespace

Storage::Storage(std::size_t bytes, Device device) : Storage(bytes, device, workspace_label()) {}

Storage::Storage(std::size_t bytes, Device device, const MemoryLabel& label)
    : bytes_(bytes), device_(device), data_(allocator(device).allocate(bytes, label)) {}

Storage::Storage(std::shared_ptr<void> block, std::size_t bytes)
    : bytes_(bytes), device_(cpu), block_(std::move(block)), data_(block_.get()) {}

Storage::~Storage() {
  if (!block_) allocator(device_).release(data_);
}

Tensor::Tensor() = default;
Tensor::Tensor(const Tensor&) = default;
Tensor::Tensor(Tensor&&) noexcept = default;
Tensor& Tensor::operator=(const Tensor&) = default;
Tensor& Tensor::operator=(Tensor&&) noexcept = default;
Tensor::~Tensor() = default;

namespace {

std::size_t bytes_of(const Shape& shape, Dtype dtype) {
  for (const std::int64_t size : shape) check(size >= 0, "tensor: negative size in {}", shape);
  const auto bytes = checked_bytes(shape, size_of(dtype));
  check(bytes.has_value(), "tensor: too many elements in {}", shape);
  return static_cast<std::size_t>(*bytes);
}

}  // namespace

Tensor Tensor::empty(const Shape& shape, Dtype dtype, Device device) {
  return row_major_in(
      std::make_shared<Storage>(bytes_of(shape, dtype), device, sotto::memory_label()), shape,
      dtype);
}

Tensor Tensor::from_block(std::shared_ptr<void> block, const Shape& shape, Dtype dtype) {
  return row_major_in(std::make_shared<Storage>(std::move(block), bytes_of(shape, dtype)), shape,
                      dtype);
}

Tensor Tensor::row_major_in(std::shared_ptr<Storage> storage, const Shape& shape, Dtype dtype) {
  Tensor y;
  y.shape_ = shape;
  y.strides_ = contiguous_strides(shape);
  y.dtype_ = dtype;
  y.storage_ = std::move(storage);
  return y;
}

Tensor Tensor::empty_ordered(const Shape& shape, const Shape& order, Dtype dtype, Device device) {
  Tensor y = empty(shape, dtype, device);
  std::int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    const int axis = static_cast<int>(order[i]);
    y.strides_[axis] = stride;
    stride *= shape[axis];
  }
  return y;
}

Tensor Tensor::from(std::initializer_list<double> values, const Shape& shape, Dtype dtype) {
  return dispatch(dtype, [&]<class T>(std::type_identity<T>) {
    Tensor y = empty(shape, dtype);
    check(static_cast<std::int64_t>(values.size()) == shape.numel(),
          "tensor: {} values for the shape {}", values.size(), shape);
    std::transform(values.begin(), values.end(), static_cast<T*>(y.storage_->data()),
                   [](double v) { return static_cast<T>(static_cast<acc_t<T>>(v)); });
    return y;
  });
}

Tensor Tensor::from_elements(const void* values, std::size_t count, const Shape& shape,
                             Dtype dtype) {
  check(static_cast<std::int64_t>(count) == shape.numel(), "tensor: {} values for the shape {}",
        count, shape);
  Tensor y = empty(shape, dtype);
  if (count > 0) std::memcpy(y.storage_->data(), values, count * size_of(dtype));
  return y;
}

void* Tensor::elements(Dtype dtype) const {
  check(dtype_ == dtype, "tensor: elements are {}, but {} was requested", name(dtype_),
        name(dtype));
  check(device() == cpu, "tensor: elements are on a GPU, but were requested on the CPU");
  return view().data;
}

Tensor Tensor::row_major() const {
  if (device() != cpu) return to(cpu).row_major();
  if (contiguous()) return *this;
  Tensor y = empty(shape_, dtype_);
  const auto width = static_cast<std::int64_t>(size_of(dtype_));
  const char* from = static_cast<const char*>(view().data);
  char* to = static_cast<char*>(y.storage_->data());
  for_each_offset(shape_, strides_, [&](std::int64_t offset) {
    std::memcpy(to, from + offset * width, static_cast<std::size_t>(width));
    to += width;
  });
  return y;
}

MemoryLabel Tensor::memory_label() const {
  return defined() ? allocator(device()).label_of(storage_->data()) : MemoryLabel{};
}

void Tensor::relabel(const MemoryLabel& label) const {
  if (defined()) allocator(device()).relabel(storage_->data(), label);
}

void Tensor::relabel(MemoryKind kind) const {
  MemoryLabel label = memory_label();
  label.kind = kind;
  relabel(label);
}

Tensor Tensor::outline() const {
  Tensor y = *this;
  y.storage_ = nullptr;
  return y;
}

Device Tensor::device() const {
  check(defined(), "tensor: not defined");
  return storage_->device();
}

Shape Tensor::memory_order() const {
  Shape order;
  // Insertion sort by decreasing stride.
  for (int i = 0; i < rank(); ++i) {
    int at = i;
    while (at > 0 && strides_[static_cast<int>(order[at - 1])] < strides_[i]) --at;
    order.insert(at, i);
  }
  return order;
}

bool Tensor::is_dense() const { return contiguous() || permute(memory_order()).contiguous(); }

View Tensor::view() const {
  if (Capture::any()) Capture::keep(storage_);
  View v;
  v.dtype = dtype_;
  v.rank = rank();
  std::copy(shape_.begin(), shape_.end(), v.size);
  std::copy(strides_.begin(), strides_.end(), v.stride);
  if (defined() && storage_->data()) {
    v.data =
        static_cast<char*>(storage_->data()) + offset_ * static_cast<std::int64_t>(size_of(dtype_));
  }
  return v;
}

double Tensor::item() const {
  check(defined() && numel() == 1, "item: {} elements in a tensor of shape {}", numel(), shape_);
  if (device() != cpu) return to(cpu).item();
  return dispatch(dtype_, [&]<class T>(std::type_identity<T>) {
    return static_cast<double>(static_cast<acc_t<T>>(*data<T>()));
  });
}

double Tensor::at(const Shape& index) const {
  check(defined() && index.rank() == rank(), "at: indices {} in a tensor of shape {}", index,
        shape_);
  Tensor element = *this;
  for (const std::int64_t at : index) element = element.select(0, at);
  return element.item();
}

Tensor Tensor::to(Device device) const {
  if (device == this->device()) return *this;
  std::int64_t last = -1;
  if (numel() > 0) {
    last = 0;
    for (int i = 0; i < rank(); ++i) last += (shape_[i] - 1) * strides_[i];
  }
  // A copy from the host into captured work is a constant, so it must not use the pool, whose
  // blocks the work overwrites.
  const AllocationPool::Scope apart(nullptr);
  Tensor y = *this;
  y.offset_ = 0;
  const auto bytes = static_cast<std::size_t>(last + 1) * size_of(dtype_);
  y.storage_ = std::make_shared<Storage>(bytes, device);
  copy_bytes(y.storage_->data(), device, view().data, this->device(), bytes);
  return y;
}

Tensor Tensor::permute(const Shape& axes) const {
  check(axes.rank() == rank(), "permute: axes {} for the shape {}", axes, shape_);
  Tensor y = *this;
  unsigned seen = 0;
  for (int k = 0; k < rank(); ++k) {
    const int axis = normalize_axis("permute", static_cast<int>(axes[k]), rank());
    seen |= 1u << axis;
    y.shape_[k] = shape_[axis];
    y.strides_[k] = strides_[axis];
  }
  check(seen == (1u << rank()) - 1, "permute: axes {} name an axis twice", axes);
  return y;
}

Tensor Tensor::transpose(int a, int b) const {
  Tensor y = *this;
  a = normalize_axis("transpose", a, rank());
  b = normalize_axis("transpose", b, rank());
  std::swap(y.shape_[a], y.shape_[b]);
  std::swap(y.strides_[a], y.strides_[b]);
  return y;
}

Tensor Tensor::slice(int axis, std::int64_t start, std::int64_t stop, std::int64_t step) const {
  axis = normalize_axis("slice", axis, rank());
  check(step >= 1 && 0 <= start && start <= stop && stop <= shape_[axis],
        "slice: {}:{}:{} of axis {} in {}", start, stop, step, axis, shape_);
  Tensor y = *this;
  y.shape_[axis] = (stop - start + step - 1) / step;
  y.offset_ += start * strides_[axis];
  y.strides_[axis] *= step;
  return y;
}

Tensor Tensor::select(int axis, std::int64_t index) const {
  axis = normalize_axis("select", axis, rank());
  const std::int64_t at = index < 0 ? index + shape_[axis] : index;
  check(at >= 0 && at < shape_[axis], "select: index {} of axis {} in {}", index, axis, shape_);
  return slice(axis, at, at + 1).squeeze(axis);
}

Tensor Tensor::operator[](std::int64_t index) const {
  check(rank() > 0, "tensor: index {} of a tensor of shape {}", index, shape_);
  return select(0, index);
}

Tensor Tensor::unsqueeze(int axis) const {
  axis = normalize_axis("unsqueeze", axis, rank() + 1);
  Tensor y = *this;
  y.shape_.insert(axis, 1);
  y.strides_.insert(axis, axis < rank() ? shape_[axis] * strides_[axis] : 1);
  return y;
}

Tensor Tensor::squeeze(int axis) const {
  axis = normalize_axis("squeeze", axis, rank());
  check(shape_[axis] == 1, "squeeze: axis {} of {} does not have size 1", axis, shape_);
  Tensor y = *this;
  y.shape_.erase(axis);
  y.strides_.erase(axis);
  return y;
}

Tensor Tensor::expand(const Shape& shape) const {
  check(broadcast_shapes("expand", shape_, shape) == shape, "expand: {} does not broadcast to {}",
        shape_, shape);
  Tensor y = *this;
  y.shape_ = shape;
  y.strides_ = Shape::filled(shape.rank(), 0);
  const int lead = shape.rank() - rank();
  for (int i = 0; i < rank(); ++i) {
    y.strides_[lead + i] = shape_[i] == shape[lead + i] ? strides_[i] : 0;
  }
  return y;
}

namespace {

// Maps the new axes from `fresh` on to a run of `run` elements with stride `stride`. Returns false
// if they do not match, else advances `fresh` past them.
bool cover_run(Tensor::Layout& y, int& fresh, std::int64_t run, std::int64_t stride) {
  const int begin = fresh;
  std::int64_t covered = 1;
  while (fresh < y.shape.rank() && covered < run) covered *= y.shape[fresh++];
  if (covered != run) return false;
  for (int i = fresh - 1; i >= begin; --i) {
    y.strides[i] = stride;
    stride *= y.shape[i];
  }
  return true;
}

}  // namespace

std::optional<Tensor> Tensor::view_as(const Shape& wanted) const {
  Layout to{infer_shape("reshape", wanted, numel()), {}};
  to.strides = contiguous_strides(to.shape);
  // Consecutive old axes that are contiguous among themselves form a run, which can be split and
  // merged freely.
  std::int64_t run = 1;
  std::int64_t stride = 0;
  int fresh = 0;
  const bool trivial = contiguous() || numel() == 0;
  for (int axis = 0; axis < rank() && !trivial; ++axis) {
    if (shape_[axis] == 1) continue;
    if (run > 1 && stride != strides_[axis] * shape_[axis]) {
      if (!cover_run(to, fresh, run, stride)) return std::nullopt;
      run = 1;
    }
    run *= shape_[axis];
    stride = strides_[axis];
  }
  if (!trivial && !cover_run(to, fresh, run, stride)) return std::nullopt;
  Tensor y = *this;
  y.shape_ = to.shape;
  y.strides_ = to.strides;
  return y;
}

Shape infer_shape(const char* op, const Shape& shape, std::int64_t numel) {
  Shape y = shape;
  std::int64_t known = 1;
  int open = -1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == -1) {
      check(open < 0, "{}: more than one -1 in {}", op, shape);
      open = i;
    } else {
      check(shape[i] >= 0, "{}: negative size in {}", op, shape);
      known *= shape[i];
    }
  }
  if (open >= 0 && known > 0) y[open] = numel / known;
  check(y.numel() == numel && (open < 0 || known > 0), "{}: {} elements do not fill {}", op, numel,
        shape);
  return y;
}

}  // namespace sotto
