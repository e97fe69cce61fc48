// The ranks of this process and those that were launched with it.
#pragma once

#include <memory>

#include "core/ranks/rank_limits.h"
#include "core/ranks/ranks.h"

namespace sotto {

// This process's rank: one of those that mpirun or srun launched, by the MPI of the launcher
// (libsotto_openmpi.so, libsotto_mpich.so), or the only one. Calls while it is held return the same
// one. Hold it in main(): destroying it ends this rank's part and waits for the others; exit(), and
// an exception that leaves main() or destroys it, are failures of the run. A failure is printed to
// stderr by one rank, and ends all processes. Throws SystemFailure if this build has no library for
// the launcher's MPI, or if that library finds other ranks than were launched.
std::shared_ptr<Ranks> launched_ranks(const RankLimits& limits = {});

}  // namespace sotto
