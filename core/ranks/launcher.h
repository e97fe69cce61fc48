// The launcher that started this process as one of several: mpirun or Slurm.
#pragma once

#include <optional>
#include <string>

namespace sotto {

// A launcher and the number of processes that it started.
struct Launcher {
  std::string name;  // for people
  std::string mpi;   // "openmpi" or "mpich": the library that it speaks to
  int size = 1;      // processes
};

// The launcher, from the environment variables that it sets; nullopt without one. Throws
// SystemFailure if it does not say how many processes there are.
std::optional<Launcher> launcher_of_process();

}  // namespace sotto
