// The tensor: shared storage seen through a shape and strides. Slicing, permuting and broadcasting
// return views of the storage; kernels/tensor_ops/tensor_ops.h has the operations that compute new
// tensors.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/allocator/memory_label.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/shape.h"
#include "core/view.h"

namespace sotto {

// A block of bytes on a device, returned to the device's allocator with the last tensor that uses
// it.
class Storage {
 public:
  // Scratch memory: labelled as workspace.
  Storage(std::size_t bytes, Device device);
  Storage(std::size_t bytes, Device device, const MemoryLabel& label);
  // Memory on the CPU that `block` owns, such as a mapped file; no allocator counts it.
  Storage(std::shared_ptr<void> block, std::size_t bytes);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  // True if an allocator's block holds the bytes.
  bool in_block() const { return block_ != nullptr; }

 private:
  std::size_t bytes_;
  Device device_;
  std::shared_ptr<void> block_;
  void* data_;
};

// An n-dimensional array of one dtype on one device. Copies share storage, and views are Tensors.
// It has no gradient; a Var (autograd/tape.h) has.
//   Tensor x = Tensor::from({1, 2, 3, 4}, {2, 2}, Dtype::f32);
//   x.select(0, 1).to_vector<float>();  // {3, 4}
class Tensor {
 public:
  // Sizes of the axes, and distances in elements along them.
  struct Layout {
    Shape shape;    // sizes of the axes
    Shape strides;  // in elements
  };

  // An undefined tensor: defined() is false and every other call is an error. The special members
  // are not inline, so that users of tensors do not compile them in every file.
  Tensor();
  Tensor(const Tensor&);
  Tensor(Tensor&&) noexcept;
  Tensor& operator=(const Tensor&);
  Tensor& operator=(Tensor&&) noexcept;
  ~Tensor();

  // An uninitialised tensor, row-major.
  static Tensor empty(const Shape& shape, Dtype dtype = Dtype::f32, Device device = cpu);
  // An uninitialised tensor with its axes ordered in memory, slowest first, by `order`: {0, 2, 3,
  // 1} is channels-last for [n, c, h, w].
  static Tensor empty_ordered(const Shape& shape, const Shape& order, Dtype dtype, Device device);
  // A copy of the values, row-major, on the CPU. Throws if values.size() differs from
  // shape.numel().
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape);
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape) {
    return from(std::span<const T>(values), shape);
  }
  // A tensor of these numbers, converted to the dtype.
  static Tensor from(std::initializer_list<double> values, const Shape& shape, Dtype dtype);
  // A row-major tensor on the CPU over the memory of `block`, such as a mapped file. The storage
  // keeps the block alive.
  static Tensor from_block(std::shared_ptr<void> block, const Shape& shape, Dtype dtype);

  // False for a default-constructed tensor, and for outline().
  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  // The distance of neighbours along each axis, in elements.
  const Shape& strides() const { return strides_; }
  int rank() const { return shape_.rank(); }
  // Negative axes count from the end.
  std::int64_t size(int axis) const { return shape_[normalize_axis("size", axis, rank())]; }
  std::int64_t numel() const { return shape_.numel(); }
  Dtype dtype() const { return dtype_; }
  Device device() const;
  // The bytes of its elements, without gaps.
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype_); }
  // True if the tensor is row-major without gaps.
  bool contiguous() const { return view().contiguous(); }
  // True if some permutation of its axes is row-major without gaps.
  bool is_dense() const;
  // The axes by decreasing stride: the order in which a dense tensor is stored.
  Shape memory_order() const;
  // True if both are views of one block.
  bool shares_storage(const Tensor& other) const { return storage_ == other.storage_; }
  // The label of the storage's block; a default label for an empty tensor.
  MemoryLabel memory_label() const;
  // Sets the label of the block.
  void relabel(const MemoryLabel& label) const;
  void relabel(MemoryKind kind) const;  // keeps the rest of the label
  // True for elements in a block of from_block().
  bool in_block() const { return storage_ && storage_->in_block(); }
  // True if no other tensor shares the storage, so that it may be overwritten.
  bool sole() const { return storage_.use_count() == 1; }
  // Shape, strides and type without storage: defined() is false.
  Tensor outline() const;

  // The elements for kernels; does not own them.
  View view() const;
  // The address of the first element; CPU only. Throws if T is not the dtype.
  template <class T>
  T* data() const;
  // The values in row-major order, whatever the strides and device. Throws if T is not the dtype.
  template <class T>
  std::vector<T> to_vector() const;
  // The only element, as a double. Throws std::invalid_argument when there are more, or none.
  double item() const;
  // The element at one index for each axis, x.at({0, -1}), as a double; negative indices count from
  // the end. Throws std::invalid_argument, with the shape, for another number of indices and for
  // one out of range.
  double at(const Shape& index) const;
  // A copy on `device` with equal strides (bytes between the first and the last element are
  // copied); the tensor itself if it is on that device. Throws std::invalid_argument, with the
  // reason, if the device cannot be used.
  Tensor to(Device device) const;

  // Views. They take negative axes and throw std::invalid_argument, naming the call.
  Tensor permute(const Shape& axes) const;  // y axis k is x axis axes[k]
  Tensor transpose(int a, int b) const;     // exchanges two axes
  // Elements start, start + step, ... below stop of an axis.
  Tensor slice(int axis, std::int64_t start, std::int64_t stop, std::int64_t step = 1) const;
  Tensor select(int axis, std::int64_t index) const;  // drops the axis
  Tensor operator[](std::int64_t index) const;        // select(0, index)
  Tensor unsqueeze(int axis) const;                   // inserts an axis of size 1
  Tensor squeeze(int axis) const;                     // drops an axis of size 1
  Tensor expand(const Shape& shape) const;            // broadcast, aligned at the right
  // A view of the elements in row-major order under another shape; nullopt if that needs a copy.
  // One entry may be -1 and is inferred.
  std::optional<Tensor> view_as(const Shape& shape) const;

 private:
  static Tensor from_elements(const void* values, std::size_t count, const Shape& shape,
                              Dtype dtype);
  static Tensor row_major_in(std::shared_ptr<Storage> storage, const Shape& shape, Dtype dtype);
  void* elements(Dtype dtype) const;
  // A row-major tensor on the CPU; the tensor itself if it is one.
  Tensor row_major() const;

  std::shared_ptr<Storage> storage_;
  std::int64_t offset_ = 0;  // in elements
  Shape shape_;
  Shape strides_;
  Dtype dtype_ = Dtype::f32;
};

// `shape` with its one -1 replaced so that the product is `numel`. Throws, naming `op`.
Shape infer_shape(const char* op, const Shape& shape, std::int64_t numel);

// Calls f(offset) for every element in row-major order; offsets count elements from the first one.
template <class F>
void for_each_offset(const Shape& shape, const Shape& strides, F&& f) {
  Shape at = Shape::filled(shape.rank(), 0);
  for (std::int64_t left = shape.numel(), offset = 0; left > 0; --left) {
    f(offset);
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      offset += strides[axis];
      if (++at[axis] < shape[axis]) break;
      offset -= strides[axis] * shape[axis];
      at[axis] = 0;
    }
  }
}

template <class T>
Tensor Tensor::from(std::span<const T> values, const Shape& shape) {
  return from_elements(values.data(), values.size(), shape, dtype_of<T>());
}

template <class T>
T* Tensor::data() const {
  return static_cast<T*>(elements(dtype_of<T>()));
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  const Tensor x = row_major();
  const T* first = x.data<T>();
  return std::vector<T>(first, first + numel());
}

}  // namespace sotto
