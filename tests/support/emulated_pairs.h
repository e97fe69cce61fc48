// The processor's instructions for pairs of bf16 terms, computed as Intel's manual says (TDPBF16PS
// and VDPBF16PS): on any machine, and slowly.
#pragma once

#include "kernels/cpu/gemm/pair_kernel.h"

namespace sotto {

enum class PairInstructions { tiles, dots };

// Products of bf16 use the instructions while it lives.
class EmulatedPairs {
 public:
  explicit EmulatedPairs(PairInstructions instructions);
  ~EmulatedPairs() { use_pair_kernel(nullptr); }
  EmulatedPairs(const EmulatedPairs&) = delete;
  EmulatedPairs& operator=(const EmulatedPairs&) = delete;
};

}  // namespace sotto
