// Where a run's time goes, kernel by kernel: while a KernelProfile lives, every primitive of the
// CPU's backend is timed, and its operations and the least bytes it must move are counted from the
// shapes. What the counts say a machine's peak allows is the floor of a training step
// (docs/performance.md).
#pragma once

#include <string>
#include <vector>

#include "kernels/backend.h"

namespace sotto {

// All calls of one primitive with the same shapes.
struct KernelTotal {
  std::string name;    // "gemm", "unary tanh"
  std::string shapes;  // of its operands, as "256x512 512x32"
  std::int64_t calls = 0;
  double seconds = 0;
  // Multiplications and additions of products, convolutions and Gram norms; of other primitives
  // one for each element read.
  double flops = 0;
  // Each operand once: what it would take with caches that hold nothing between calls and lose
  // nothing within one.
  double bytes = 0;
};

// One at a time; not while other threads compute. Throws std::invalid_argument for a second one.
class KernelProfile {
 public:
  KernelProfile();
  ~KernelProfile();
  KernelProfile(const KernelProfile&) = delete;
  KernelProfile& operator=(const KernelProfile&) = delete;

  // The slowest first.
  std::vector<KernelTotal> totals() const;
  // With the shapes of a primitive together: `shapes` is empty.
  std::vector<KernelTotal> totals_by_name() const;
  void reset();
};

}  // namespace sotto
