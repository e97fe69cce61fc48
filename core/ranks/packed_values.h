// Values as bytes, for messages between ranks.
#pragma once

#include <cstdint>
#include <cstring>
#include <ranges>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.h"

namespace sotto {

// A struct that lists its members: `static auto fields(auto& self) { return std::tie(self.a); }`.
template <class T>
concept HasFields = requires(T& value) {
  T::fields(value);
};

// A pair or tuple.
template <class T>
concept TupleLike = requires {
  std::tuple_size<T>::value;
};

// Values one after the other: numbers and other trivial types, and pairs, tuples, structs with
// fields(), vectors and strings of such.
class PackedValues {
 public:
  // Appends a value.
  template <class T>
  void add(const T& value) {
    const auto add_each = [this](const auto&... each) { (add(each), ...); };
    if constexpr (HasFields<T>) {
      std::apply(add_each, T::fields(value));
    } else if constexpr (TupleLike<T>) {
      std::apply(add_each, value);
    } else if constexpr (std::ranges::sized_range<T>) {
      add_range(value);
    } else {
      static_assert(std::is_trivially_copyable_v<T>);
      append(&value, sizeof value);
    }
  }
  // Gives up the bytes.
  std::vector<std::byte> take() && { return std::move(bytes_); }

 private:
  template <class T>
  void add_range(const T& values) {
    add(static_cast<std::uint64_t>(std::size(values)));
    if constexpr (std::is_trivially_copyable_v<std::ranges::range_value_t<T>>) {
      append(std::data(values), std::size(values) * sizeof *std::data(values));
    } else {
      for (const auto& value : values) add(value);
    }
  }
  void append(const void* from, std::size_t size) {
    const std::size_t end = bytes_.size();
    bytes_.resize(end + size);
    if (size > 0) std::memcpy(bytes_.data() + end, from, size);
  }
  std::vector<std::byte> bytes_;
};

// Takes the values out again, in the same order. Throws std::invalid_argument at the end.
class UnpackedValues {
 public:
  // The bytes of a PackedValues.
  explicit UnpackedValues(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  // Returns the next value.
  template <class T>
  T take() {
    T value{};
    read(value);
    return value;
  }

 private:
  template <class T>
  void read(T& value) {
    const auto read_each = [this](auto&... each) { (read(each), ...); };
    if constexpr (HasFields<T>) {
      std::apply(read_each, T::fields(value));
    } else if constexpr (TupleLike<T>) {
      std::apply(read_each, value);
    } else if constexpr (std::ranges::sized_range<T>) {
      read_range(value);
    } else {
      copy(&value, sizeof value);
    }
  }
  template <class T>
  void read_range(T& values) {
    using Value = typename T::value_type;
    constexpr bool plain = std::is_trivially_copyable_v<Value>;
    const auto count = take<std::uint64_t>();
    check_left(count <= (bytes_.size() - at_) / (plain ? sizeof(Value) : 1));
    values.resize(count);
    if constexpr (plain) {
      copy(values.data(), count * sizeof(Value));
    } else {
      for (Value& value : values) read(value);
    }
  }
  void copy(void* to, std::size_t size) {
    check_left(size <= bytes_.size() - at_);
    if (size > 0) std::memcpy(to, bytes_.data() + at_, size);
    at_ += size;
  }
  static void check_left(bool enough) { check(enough, "message between ranks: it ends early"); }

  std::vector<std::byte> bytes_;
  std::size_t at_ = 0;
};

// Returns one value as bytes.
template <class T>
std::vector<std::byte> pack(const T& value) {
  PackedValues packed;
  packed.add(value);
  return std::move(packed).take();
}
// Returns the value that pack() has packed.
template <class T>
T unpack(std::vector<std::byte> bytes) {
  return UnpackedValues(std::move(bytes)).take<T>();
}

}  // namespace sotto
