// Right factors of products that are written row by row into the panels of the inner loops
// (microkernel.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

namespace sotto::tiles {

// A row of a right factor, which is written into panels of a block of its columns: `columns` of
// them from `first` on.
template <class T>
struct RowOfPanels {
  T* panels;
  std::int64_t row, terms;
  std::int64_t width, last_width;  // of panels
  std::int64_t first, columns;

  T* at(std::int64_t j) const {
    const std::int64_t panel = j / width * width;
    const std::int64_t own = panel + width <= columns ? width : last_width;
    return panels + panel * terms + row * own + j - panel;
  }
  // Writes the factor's columns from `column` on, zeros if `from` is null. Columns outside of the
  // block are left out.
  void put(std::int64_t column, const T* from, std::int64_t count) const {
    const std::int64_t end = std::min(column + count - first, columns);
    std::int64_t j = std::max<std::int64_t>(column - first, 0);
    if (from) from += first + j - column;
    while (j < end) {
      const std::int64_t some = std::min(end - j, width - j % width);
      from ? std::copy_n(from, some, at(j)) : std::fill_n(at(j), some, T{0});
      if (from) from += some;
      j += some;
    }
  }
};

// Writes row number `row` of a right factor.
template <class T>
using RowWriter = std::function<void(std::int64_t row, const RowOfPanels<T>& to)>;

}  // namespace sotto::tiles
