#include "core/ranks/launcher.h"

#include <cstdlib>

#include "core/error.h"

namespace sotto {

namespace {

int processes(const char* variable) {
  const std::string text = std::getenv(variable);
  char* end = nullptr;
  const long count = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || count < 1 || count > 1 << 24)
    throw SystemFailure(fmt::format("{}: not a number of processes: \"{}\"", variable, text));
  return static_cast<int>(count);
}

}  // namespace

std::optional<Launcher> launcher_of_process() {
  if (std::getenv("OMPI_COMM_WORLD_SIZE"))
    return Launcher{"Open MPI's mpirun", "openmpi", processes("OMPI_COMM_WORLD_SIZE")};
  if (std::getenv("PMI_SIZE")) return Launcher{"MPICH's mpirun", "mpich", processes("PMI_SIZE")};
  // Set by srun for the processes of a step, and not by sbatch for its script.
  if (std::getenv("SLURM_STEP_NUM_TASKS") && std::getenv("SLURM_PROCID")) {
    const bool pmix = std::getenv("PMIX_RANK") != nullptr;
    return Launcher{"Slurm's srun", pmix ? "openmpi" : "mpich", processes("SLURM_STEP_NUM_TASKS")};
  }
  return std::nullopt;
}

}  // namespace sotto
