#include "core/shape.h"

#include <algorithm>

#include "core/join.h"

namespace sotto {

Shape::Shape(std::span<const std::int64_t> values) {
  check(values.size() <= max_rank, "shape: {} axes where at most {} are supported", values.size(),
        max_rank);
  std::copy(values.begin(), values.end(), values_.begin());
  rank_ = static_cast<int>(values.size());
}

Shape Shape::filled(int rank, std::int64_t value) {
  Shape shape;
  for (int i = 0; i < rank; ++i) shape.push_back(value);
  return shape;
}

std::int64_t Shape::numel() const {
  std::int64_t product = 1;
  for (const std::int64_t size : *this) product *= size;
  return product;
}

void Shape::push_back(std::int64_t value) { insert(rank_, value); }

void Shape::insert(int axis, std::int64_t value) {
  check(rank_ < max_rank, "shape: more than {} axes: {} with one more", max_rank, *this);
  std::copy_backward(begin() + axis, end(), values_.data() + rank_ + 1);
  (*this)[axis] = value;
  ++rank_;
}

void Shape::erase(int axis) {
  std::copy(begin() + axis + 1, end(), values_.data() + axis);
  --rank_;
}

bool Shape::operator==(const Shape& other) const {
  return std::equal(begin(), end(), other.begin(), other.end());
}

int normalize_axis(const char* op, int axis, int rank) {
  check(axis >= -rank && axis < rank, "{}: axis {} of a tensor with {} axes", op, axis, rank);
  return axis < 0 ? axis + rank : axis;
}

Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b) {
  Shape y = Shape::filled(std::max(a.rank(), b.rank()), 1);
  for (int i = 1; i <= y.rank(); ++i) {
    const std::int64_t m = i <= a.rank() ? a[a.rank() - i] : 1;
    const std::int64_t n = i <= b.rank() ? b[b.rank() - i] : 1;
    check(m == n || m == 1 || n == 1, "{}: shapes do not broadcast: {} and {}", op, a, b);
    y[y.rank() - i] = m == 1 ? n : m;
  }
  return y;
}

Shape contiguous_strides(const Shape& shape) {
  Shape strides = Shape::filled(shape.rank(), 1);
  for (int i = shape.rank() - 2; i >= 0; --i) strides[i] = strides[i + 1] * shape[i + 1];
  return strides;
}

std::optional<std::int64_t> checked_bytes(const Shape& shape, std::size_t width) {
  auto product = static_cast<std::int64_t>(width);
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(product, size == 0 ? 1 : size, &product)) return std::nullopt;
  }
  return shape.numel() == 0 ? 0 : product;
}

std::string to_string(const Shape& shape) {
  return fmt::format("({})",
                     join(shape, ", ", [](std::int64_t size) { return std::to_string(size); }));
}

}  // namespace sotto

fmt::appender fmt::formatter<sotto::Shape>::format(const sotto::Shape& shape,
                                                   fmt::format_context& context) const {
  const std::string text = sotto::to_string(shape);
  return std::copy(text.begin(), text.end(), context.out());
}
