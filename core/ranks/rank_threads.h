// The threads and the GPU of each rank, so that the ranks of a host share what it has.
#pragma once

#include <array>
#include <span>
#include <string>

#include <sched.h>

#include "core/device.h"
#include "core/ranks/ranks.h"

namespace sotto {

// The processors that a rank may use.
struct RankProcessors {
  std::array<char, 256> host{};  // its name
  cpu_set_t mask{};              // its affinity mask
};

// The number of threads of a rank: a processor that k ranks of its host may use counts 1/k; at
// least 1. So it is right whether the launcher binds ranks to processors or not.
int threads_of(std::size_t rank, std::span<const RankProcessors> ranks);

// Sets the number of threads (set_thread_count) to `threads`, or if that is 0 to this rank's
// threads_of(), unless OMP_NUM_THREADS says it, and returns a line about all ranks' for people. All
// ranks call it; rank 0 prints the line.
std::string share_processors(Ranks& ranks, int threads = 0);

// The GPU of this rank: the ranks of a host take the GPUs that they can use in turn, so that each
// has its own where there are enough. All ranks call it. Throws std::invalid_argument, with the
// reason, on a rank that can use none.
Device gpu_of_rank(Ranks& ranks);

}  // namespace sotto
