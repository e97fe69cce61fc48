// Ranks that are threads of one process: for tests, and to see a distributed run without MPI.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/ranks/rank_limits.h"
#include "core/ranks/ranks.h"

namespace sotto {

// Times and faults of ranks that are threads, for tests.
struct ThreadRanksOptions {
  RankLimits limits{};  // after which a rank counts as failed
  // Planted times: each message arrives so late, or later if the bytes before it take longer.
  double latency_seconds = 0;
  double bytes_per_second = 0;  // of what one rank sends; 0: no limit
  // A further latency of what each rank sends, so that they arrive out of order; empty: none.
  std::vector<double> rank_latency_seconds{};
  // A planted fault: as if stopped (SIGSTOP), the rank sends nothing from its operation with this
  // number on; operations count from 1.
  int silent_rank = -1;
  std::uint64_t silent_from = 0;  // that operation
};

// The ranks 0 .. size - 1, each for a thread of its own. Throws std::invalid_argument unless
// size > 0.
std::vector<std::unique_ptr<Ranks>> make_thread_ranks(int size,
                                                      const ThreadRanksOptions& options = {});

// Calls body(ranks) on `size` threads and returns when all have returned. An exception in one
// fails the run on all, and is thrown here.
void on_thread_ranks(int size, const std::function<void(Ranks&)>& body,
                     const ThreadRanksOptions& options = {});

}  // namespace sotto
