// A profile of kernels: while a KernelProfile lives, every primitive of the CPU's backend is timed,
// and its operations and the bytes it must at least move are counted from the shapes. With a
// machine's peak rates they give a lower bound for the time of a training step
// (docs/explanation/performance.md).
#pragma once

#include <string>
#include <vector>

#include "kernels/backend.h"

namespace sotto {

// The totals of all calls of one primitive with equal shapes.
struct KernelTotal {
  std::string name;    // such as "gemm", "unary tanh"
  std::string shapes;  // of its operands, and types other than f32: "256x512:bf16 512x32"
  std::int64_t calls = 0;
  double seconds = 0;
  // Multiplications and additions of products, convolutions and Gram norms; of other primitives,
  // one per element read.
  double flops = 0;
  // Each operand counted once per call: the memory traffic with caches that are empty before a call
  // and large enough within it.
  double bytes = 0;
};

// Only one may exist at a time, and not while other threads compute. Throws std::invalid_argument
// for a second one.
//   KernelProfile profile;
//   step();
//   for (const KernelTotal& kernel : profile.totals()) fmt::print("{}\n", kernel.name);
class KernelProfile {
 public:
  KernelProfile();
  ~KernelProfile();
  KernelProfile(const KernelProfile&) = delete;
  KernelProfile& operator=(const KernelProfile&) = delete;

  // The totals by decreasing time.
  std::vector<KernelTotal> totals() const;
  // The totals summed over all shapes of a primitive; `shapes` is empty.
  std::vector<KernelTotal> totals_by_name() const;
  void reset();
};

}  // namespace sotto
