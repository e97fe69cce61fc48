// Sizes and strides of a tensor: short lists of up to six integers, kept inline.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "core/error.h"

namespace sotto {

// The most axes that a tensor has.
inline constexpr int max_rank = 6;

// A list of at most max_rank integers: a shape, strides, or a list of axes.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> values)
      : Shape(std::span(values.begin(), values.size())) {}
  // The entries in their order. Throws std::invalid_argument above max_rank.
  explicit Shape(std::span<const std::int64_t> values);
  static Shape filled(int rank, std::int64_t value);  // `rank` entries of this value

  int rank() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  // The entry of an axis in [0, rank).
  std::int64_t operator[](int axis) const { return values_[static_cast<std::size_t>(axis)]; }
  // The entry of an axis in [0, rank).
  std::int64_t& operator[](int axis) { return values_[static_cast<std::size_t>(axis)]; }
  std::int64_t back() const { return (*this)[rank_ - 1]; }
  const std::int64_t* begin() const { return values_.data(); }
  const std::int64_t* end() const { return values_.data() + rank_; }

  // The product of all entries; 1 for rank 0.
  std::int64_t numel() const;
  void push_back(std::int64_t value);         // throws at 6 entries
  void insert(int axis, std::int64_t value);  // before the entry at `axis`
  void erase(int axis);                       // the entry at `axis`
  bool operator==(const Shape& other) const;

 private:
  std::array<std::int64_t, max_rank> values_{};
  int rank_ = 0;
};

// The axis counted from the front; a negative `axis` counts from the end. Throws if it is out of
// range.
int normalize_axis(const char* op, int axis, int rank);

// The shape to which a and b broadcast, aligned at the right (sizes 1 repeat). Throws, naming `op`.
Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b);

// Row-major strides, in elements.
Shape contiguous_strides(const Shape& shape);

// The bytes of a tensor with elements of `width` bytes. Returns nullopt if the product, with zero
// sizes left out, exceeds 2^63 - 1, because strides could overflow then. Sizes must not be
// negative.
std::optional<std::int64_t> checked_bytes(const Shape& shape, std::size_t width);

// The shape in words: "(4, 3)".
std::string to_string(const Shape& shape);

}  // namespace sotto

// Prints the text of to_string(). Not inline, because every source with a shape in an error text
// would compile it.
template <>
struct fmt::formatter<sotto::Shape> {
  constexpr auto parse(fmt::format_parse_context& context) const { return context.begin(); }
  fmt::appender format(const sotto::Shape& shape, fmt::format_context& context) const;
};
