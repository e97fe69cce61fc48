// The inner loops of bf16 products by instructions that multiply pairs of terms: AMX tiles, or dot
// products of AVX-512. They multiply exactly and add in f32; denormal numbers count as zero.
#pragma once

#include <cstdint>

namespace sotto {

// Rows of terms: row i begins at data + i stride bytes, and its terms are adjacent.
struct TermRows {
  const char* data;
  std::int64_t stride;
};

// Columns of pairs of terms: pair p of column j is at data + 4 (p width + j) bytes.
struct PairPanel {
  const char* data;
  std::int64_t width;
};

// Sums in f32, row-major; stride counts elements.
struct SumRows {
  float* data;
  std::int64_t stride;
};

// The widths of panels are multiples of this, the columns of a vector and of a tile.
inline constexpr std::int64_t panel_unit = 16;

// One block of a product. An element's sum has one order, whatever its place in a block, and pairs
// of zeros at the end do not change it. It is the same in parts of a multiple of pair_chain terms,
// each added to those before.
struct PairKernel {
  std::int64_t rows;     // most rows of a block
  std::int64_t columns;  // most columns of a block
  std::int64_t unit;     // rows are read and written in multiples of this
  std::int64_t pairs;    // pairs of terms are read in multiples of this
  std::int64_t chain;    // a sum rounds a term at most roundings(terms, chain) times
  // sums = a panel, or sums += a panel if `add`.
  void (*multiply)(std::int64_t rows, std::int64_t pairs, const TermRows& a, const PairPanel& panel,
                   const SumRows& sums, bool add);
  // PairScope calls these.
  void (*begin)();
  void (*end)();
};

// A thread multiplies blocks while it has one.
class PairScope {
 public:
  explicit PairScope(const PairKernel& kernel) : kernel_(kernel) { kernel.begin(); }
  ~PairScope() { kernel_.end(); }
  PairScope(const PairScope&) = delete;
  PairScope& operator=(const PairScope&) = delete;

 private:
  const PairKernel& kernel_;
};

// The processor's best kernel; nullptr if it has no such instructions.
const PairKernel* pair_kernel();
// Makes pair_kernel() return another one, until nullptr is passed: one that computes what the
// instructions do, on processors that lack them.
void use_pair_kernel(const PairKernel* kernel);

}  // namespace sotto
