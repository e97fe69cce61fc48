// What to keep of a chain of blocks, and what to run again, within a number of bytes.
//
// Recomputation is least over all plans that are persistent (a value once kept stays until backward
// has used it), by the dynamic programme over a chain of unequal blocks of Beaumont, Eyraud-Dubois,
// Herrmann, Joly and Shilova 2019, which generalises Griewank and Walther 2000.
// docs/memory.md has the model of bytes.
#pragma once

#include <cstddef>
#include <vector>

namespace sotto::memory {

// One block of a chain. Bytes of tensors as the allocator counts them, beyond the block's input;
// those of backward with the gradients of its output, its input and its parameters.
struct ChainBlock {
  std::size_t input = 0;      // of the input itself
  std::size_t output = 0;     // of the result, which is the next block's input
  std::size_t kept = 0;       // after it was recorded for backward, the result among them
  std::size_t record = 0;     // most while it is recorded
  std::size_t run = 0;        // most while it is run for its result alone
  std::size_t backward = 0;   // most in backward, what was kept among them
  std::size_t gradients = 0;  // of its parameters, which stay
  double work = 0;            // of running it once, in any unit
};
using Chain = std::vector<ChainBlock>;

// Blocks begin .. end - 1: kept when they are one block without parts; otherwise a segment that is
// run again and whose parts are these.
struct ChainPart {
  int begin = 0, end = 0;
  bool again = false;
  std::vector<ChainPart> parts = {};
};

// Parts cover the chain in order.
struct ChainPlan {
  std::vector<ChainPart> parts;
  std::size_t peak = 0;  // bytes in use at once beyond what there was before, the chain's input too
  double work = 0;       // of everything that is run again
};

// How often backward passes what was recorded: the first of two passes, that of ghost clipping's
// norms, releases nothing but what it ran again itself.
enum class BackwardPasses { one, two };

// The plan with the least work whose peak is within the budget. Sizes are rounded up to
// budget / 500 while it is sought, so that within that much of the limit it may find none where
// there is one. For two backwards it is the best of the plans for one, of this budget and smaller
// ones. Throws std::invalid_argument when there is none, with the least peak that was found.
ChainPlan plan_chain(const Chain& chain, std::size_t budget,
                     BackwardPasses backwards = BackwardPasses::one);

// Peak and work (of one backward) of any parts that cover the chain. Throws std::invalid_argument
// where they do not.
ChainPlan evaluated(const Chain& chain, std::vector<ChainPart> parts,
                    BackwardPasses backwards = BackwardPasses::one);

}  // namespace sotto::memory
