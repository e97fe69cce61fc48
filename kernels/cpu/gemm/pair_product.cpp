#include "kernels/cpu/gemm/pair_product.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "kernels/cpu/gemm/pair_packing.h"

namespace sotto {
namespace {

using pairs::lanes;
using pairs::Pair;
using pairs::rounded_up;

// Pairs of terms and columns that are packed at a time: they fit in the second-level cache. Rows of
// sums that are kept for one pass over all terms.
constexpr std::int64_t block_pairs = 480, block_columns = 240, block_rows = 1024;
constexpr std::int64_t most_rows = 48, most_columns = 48;

struct Workspace {
  alignas(64) Pair panels[block_pairs * (block_columns + panel_unit)];
  alignas(64) Pair rows[most_rows * (block_pairs + lanes)];
  alignas(64) float sums[most_rows * most_columns];
};

std::uint16_t term(const Matrix& m, std::int64_t i, std::int64_t j) {
  return static_cast<const std::uint16_t*>(m.data)[i * m.row_stride + j * m.col_stride];
}

const std::uint16_t* address(const Matrix& m, std::int64_t i, std::int64_t j) {
  return static_cast<const std::uint16_t*>(m.data) + i * m.row_stride + j * m.col_stride;
}

// The pair p of column j of b [terms, columns]; missing terms and columns are zero.
Pair pair_of(const Matrix& b, std::int64_t p, std::int64_t j) {
  if (j >= b.cols || 2 * p >= b.rows) return 0;
  return pairs::pair(term(b, 2 * p, j), 2 * p + 1 < b.rows ? term(b, 2 * p + 1, j) : 0);
}

// Packs b [terms, columns] into one panel of `pairs` pairs.
void pack_panel(const Matrix& b, std::int64_t pairs, std::int64_t width, Pair* panel) {
  const bool by_rows = b.col_stride == 1, by_columns = b.row_stride == 1 && !by_rows;
  const std::int64_t whole_pairs = by_columns ? b.rows / 2 / lanes * lanes : b.rows / 2;
  const std::int64_t whole_columns = by_rows || by_columns ? b.cols / lanes * lanes : 0;
  for (std::int64_t p = 0; by_rows && p < whole_pairs; ++p) {
    for (std::int64_t j = 0; j < whole_columns; j += lanes)
      tiles::store(pairs::interleaved(address(b, 2 * p, j), address(b, 2 * p + 1, j)),
                   panel + p * width + j);
  }
  for (std::int64_t j = 0; by_columns && j < whole_columns; j += lanes) {
    for (std::int64_t p = 0; p < whole_pairs; p += lanes)
      pairs::store_transposed(
          [&](int k) { return tiles::load<pairs::Vector>(address(b, 2 * p, j + k)); },
          panel + p * width + j, width);
  }
  for (std::int64_t p = 0; p < pairs; ++p) {
    for (std::int64_t j = p < whole_pairs ? whole_columns : 0; j < width; ++j)
      panel[p * width + j] = pair_of(b, p, j);
  }
}

// Rows of a [rows, terms] as the kernel reads them: in place, or packed into `room`.
TermRows term_rows(const PairKernel& kernel, const Matrix& a, std::int64_t pairs, Pair* room) {
  const std::int64_t rows = rounded_up(a.rows, kernel.unit);
  constexpr std::int64_t term_bytes = sizeof(std::uint16_t);
  if (a.col_stride == 1 && rows == a.rows && 2 * pairs == a.cols)
    return {static_cast<const char*>(a.data), a.row_stride * term_bytes};
  const std::int64_t pitch = pairs + lanes;
  const bool by_columns = a.row_stride == 1 && a.col_stride != 1;
  const std::int64_t whole_rows = by_columns ? a.rows / lanes * lanes : 0,
                     whole_pairs = by_columns ? a.cols / 2 / lanes * lanes : 0;
  for (std::int64_t p = 0; p < whole_pairs; p += lanes) {
    for (std::int64_t i = 0; i < whole_rows; i += lanes)
      pairs::store_transposed(
          [&](int k) {
            return pairs::interleaved(address(a, i, 2 * (p + k)), address(a, i, 2 * (p + k) + 1));
          },
          room + i * pitch + p, pitch);
  }
  const Matrix columns = a.transposed();
  for (std::int64_t i = 0; i < rows; ++i) {
    Pair* const to = room + i * pitch;
    std::int64_t p = i < whole_rows ? whole_pairs : 0;
    if (a.col_stride == 1 && i < a.rows) {
      p = a.cols / 2;
      std::memcpy(to, address(a, i, 0), static_cast<std::size_t>(p) * sizeof(Pair));
    }
    for (; p < pairs; ++p) to[p] = pair_of(columns, p, i);
  }
  return {reinterpret_cast<const char*>(room), pitch * static_cast<std::int64_t>(sizeof(Pair))};
}

// c = sums, or c += sums.
template <class T>
void put(const SumRows& sums, bool add, const Matrix& c) {
  for (std::int64_t i = 0; i < c.rows; ++i) {
    const float* const from = sums.data + i * sums.stride;
    T* const to = static_cast<T*>(c.data) + i * c.row_stride;
    if (c.col_stride == 1 && !add) {
      for (std::int64_t j = 0; j < c.cols; ++j) to[j] = T(from[j]);
    } else {
      for (std::int64_t j = 0; j < c.cols; ++j) {
        T& at = to[j * c.col_stride];
        at = T(add ? static_cast<float>(at) + from[j] : from[j]);
      }
    }
  }
}

void put_any(const SumRows& sums, bool add, const Matrix& c) {
  if (c.dtype == Dtype::f32) return put<float>(sums, add, c);
  c.dtype == Dtype::bf16 ? put<bf16>(sums, add, c) : put<f16>(sums, add, c);
}

// sums = c, which is f32 with adjacent columns: the sums continue those of c.
void take(const Matrix& c, const SumRows& sums) {
  for (std::int64_t i = 0; i < c.rows; ++i)
    std::copy_n(static_cast<const float*>(c.data) + i * c.row_stride, c.cols,
                sums.data + i * sums.stride);
}

// Some rows and some columns of a product, for which sums are kept over all terms.
class PairBlock {
 public:
  PairBlock(const PairKernel& kernel, const Matrix& a, const Matrix& b, bool add, const Matrix& c,
            Workspace& workspace)
      : kernel_(kernel), a_(a), b_(b), add_(add), c_(c), room_(workspace) {
    const bool once = a.cols <= 2 * block_pairs;
    if (!sums_in_c() && !once)
      kept_.emplace(rounded_up(c.rows, kernel.unit), kept_pitch(), Dtype::f32);
  }

  void multiply() {
    for (std::int64_t k = 0; k < a_.cols; k += 2 * block_pairs)
      add_terms(k, std::min(2 * block_pairs, a_.cols - k));
  }

 private:
  std::int64_t kept_pitch() const { return rounded_up(c_.cols, panel_unit); }

  // True if whole blocks of sums are computed where they belong.
  bool sums_in_c() const { return c_.dtype == Dtype::f32 && c_.col_stride == 1; }

  void add_terms(std::int64_t k, std::int64_t terms) {
    const std::int64_t pairs = rounded_up((terms + 1) / 2, kernel_.pairs);
    const Matrix b = b_.row_block(k, terms);
    for (std::int64_t j = 0; j < b.cols; j += kernel_.columns) {
      const std::int64_t columns = std::min(kernel_.columns, b.cols - j);
      pack_panel(b.column_block(j, columns), pairs, rounded_up(columns, panel_unit),
                 room_.panels + j * pairs);
    }
    for (std::int64_t i = 0; i < a_.rows; i += kernel_.rows) {
      const std::int64_t rows = std::min(kernel_.rows, a_.rows - i);
      const TermRows x =
          term_rows(kernel_, a_.row_block(i, rows).column_block(k, terms), pairs, room_.rows);
      for (std::int64_t j = 0; j < b.cols; j += kernel_.columns)
        multiply_block(x, pairs, i, rows, j, k);
    }
  }

  void multiply_block(const TermRows& x, std::int64_t pairs, std::int64_t i, std::int64_t rows,
                      std::int64_t j, std::int64_t k) {
    const std::int64_t columns = std::min(kernel_.columns, b_.cols - j);
    const PairPanel panel{reinterpret_cast<const char*>(room_.panels + j * pairs),
                          rounded_up(columns, panel_unit)};
    const Matrix c = c_.row_block(i, rows).column_block(j, columns);
    const bool whole = rows % kernel_.unit == 0 && columns % panel_unit == 0;
    if (sums_in_c() && whole) {
      const SumRows sums{static_cast<float*>(c.data), c.row_stride};
      return kernel_.multiply(rows, pairs, x, panel, sums, add_ || k > 0);
    }
    if (!kept_) {
      const SumRows sums{room_.sums, panel.width};
      const bool before = sums_in_c() && (add_ || k > 0);
      if (before) take(c, sums);
      kernel_.multiply(rows, pairs, x, panel, sums, before);
      return put_any(sums, add_ && !before, c);
    }
    const SumRows sums{static_cast<float*>(kept_->matrix().data) + i * kept_pitch() + j,
                       kept_pitch()};
    kernel_.multiply(rows, pairs, x, panel, sums, k > 0);
    if (k + 2 * block_pairs >= a_.cols) put_any(sums, add_, c);
  }

  const PairKernel& kernel_;
  const Matrix a_, b_;
  const bool add_;
  const Matrix c_;
  Workspace& room_;
  std::optional<Scratch> kept_;
};

}  // namespace

void pair_product(const PairKernel& kernel, const Matrix& a, const Matrix& b, bool add,
                  const Matrix& c) {
  Workspace workspace;  // on the stack: used by this thread only, and freed when it returns
  const PairScope scope(kernel);
  pairs::in_vectors([&] {
    for (std::int64_t j = 0; j < c.cols; j += block_columns) {
      const std::int64_t columns = std::min(block_columns, c.cols - j);
      for (std::int64_t i = 0; i < c.rows; i += block_rows) {
        const std::int64_t rows = std::min(block_rows, c.rows - i);
        PairBlock(kernel, a.row_block(i, rows), b.column_block(j, columns), add,
                  c.row_block(i, rows).column_block(j, columns), workspace)
            .multiply();
      }
    }
  });
}

}  // namespace sotto
