// Several arrays in one launch, as its arguments.
#pragma once

#include <cstdint>
#include <span>

#include "core/view.h"

namespace sotto {

// The index of the last of `count` arrays that begins at `index` or before it.
template <class Array>
HD std::int64_t index_of(const Array* arrays, std::int64_t count, std::int64_t Array::*first,
                         std::int64_t index) {
  std::int64_t low = 0, high = count;  // the array's index is in [low, high)
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    (arrays[middle].*first <= index ? low : high) = middle;
  }
  return low;
}
template <class Array>
HD const Array& array_of(const Array* arrays, std::int64_t count, std::int64_t Array::*first,
                         std::int64_t index) {
  return arrays[index_of(arrays, count, first, index)];
}

// Some arrays, each with a number of bodies, for one launch, whose arguments hold 4 KiB.
template <class Array>
class ArrayTable {
 public:
  // Adds an array, and returns true, if there is room.
  bool add(const Array& array, std::int64_t bodies) {
    if (count_ == max) return false;
    if (bodies > 0) arrays_[count_++] = {array, bodies_};
    bodies_ += bodies;
    return true;
  }
  std::int64_t bodies() const { return bodies_; }

  struct Body {
    Array array;
    std::int64_t index;  // within the array
  };
  HD Body operator[](std::int64_t index) const {
    const std::int64_t at = index_of(arrays_, count_, &Placed::first, index);
    return {arrays_[at].array, index - arrays_[at].first};
  }

 private:
  struct Placed {
    Array array;
    std::int64_t first;
  };
  static constexpr std::int64_t max = 3840 / sizeof(Placed);
  Placed arrays_[max];
  std::int64_t count_ = 0, bodies_ = 0;
};

// Calls f(table) for tables that hold all of `count` arrays; add(table, k) adds array k.
template <class Array, class Add, class F>
void for_each_table(std::int64_t count, const Add& add, const F& f) {
  for (std::int64_t k = 0; k < count;) {
    ArrayTable<Array> table;
    while (k < count && add(table, k)) ++k;
    if (table.bodies() > 0) f(table);
  }
}

}  // namespace sotto
