// Activation checkpointing of a chain of blocks: which values to keep and which to recompute,
// within a number of bytes.
//
// The plan has the least recomputation among persistent plans (a kept value stays until backward
// has used it), found by the dynamic programme of Beaumont, Eyraud-Dubois, Herrmann, Joly and
// Shilova 2019 for chains of unequal blocks, which generalises Griewank and Walther 2000.
// docs/appendix/memory-notes.md describes the model of bytes.
#pragma once

#include <cstddef>
#include <vector>

namespace sotto::memory {

// The costs of one block. Sizes are bytes as the allocator counts them, beyond the block's input;
// those of backward include the gradients of its output, its input and its parameters.
struct ChainBlock {
  std::size_t input = 0;      // of the input itself
  std::size_t output = 0;     // of the result, which is the next block's input
  std::size_t kept = 0;       // saved for backward after recording, the result included
  std::size_t record = 0;     // peak while it is recorded
  std::size_t run = 0;        // peak while it is run for its result only
  std::size_t backward = 0;   // peak in backward, saved values included
  std::size_t gradients = 0;  // of its parameters' gradients, which stay
  double work = 0;            // of running it once, in any unit
};
// The blocks in the order in which forward runs them.
using Chain = std::vector<ChainBlock>;

// Blocks begin .. end - 1: either one block that is kept, without parts; or a segment that is
// recomputed and is itself divided into `parts`.
struct ChainPart {
  int begin = 0, end = 0;             // indices of blocks
  bool again = false;                 // true for a segment
  std::vector<ChainPart> parts = {};  // in order
};

// A plan: its parts cover the chain in order.
struct ChainPlan {
  std::vector<ChainPart> parts;  // in order
  std::size_t peak = 0;  // bytes in use at once, beyond those before the chain and its input
  double work = 0;       // of all recomputation
};

// The number of times backward runs over the recorded graph. With two passes, the first, which
// computes the norms of ghost clipping, frees only values that it has recomputed.
enum class BackwardPasses { one, two };

// The plan with the least work whose peak is within the budget. The search rounds sizes up to
// budget / 500, so that it may miss a plan that fits by less than that. For two passes it is the
// best among the plans for one pass within this budget and smaller ones. Throws
// std::invalid_argument, with the smallest peak found, when there is none.
ChainPlan plan_chain(const Chain& chain, std::size_t budget,
                     BackwardPasses backwards = BackwardPasses::one);

// The peak and the work (of one backward) of a plan with these parts. Throws std::invalid_argument
// unless they cover the chain.
ChainPlan evaluated(const Chain& chain, std::vector<ChainPart> parts,
                    BackwardPasses backwards = BackwardPasses::one);

}  // namespace sotto::memory
