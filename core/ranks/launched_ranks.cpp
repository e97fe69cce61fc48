#include "core/ranks/launched_ranks.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>

#include <dlfcn.h>

#include "core/error.h"
#include "core/library_folder.h"
#include "core/ranks/launcher.h"
#include "core/ranks/message_ranks.h"
#include "core/ranks/mpi/mpi_link.h"
#include "core/ranks/one_rank.h"

namespace sotto {

namespace {

// The time that the other ranks get to report a failure before this process takes them with it.
constexpr auto last_words = std::chrono::milliseconds(700);

std::weak_ptr<Ranks>& launched() {
  static std::weak_ptr<Ranks> ranks;
  return ranks;
}

// A clean end of main() has destroyed the ranks before.
void fail_at_exit() {
  const auto ranks = launched().lock();
  if (!ranks) return;
  ranks->fail("called exit before its run had ended");
  std::this_thread::sleep_for(last_words);
  std::fflush(nullptr);
  std::_Exit(EXIT_FAILURE);
}

std::terminate_handler terminate_before = nullptr;

std::string exception_text() {
  if (!std::current_exception()) return "terminated";
  try {
    throw;
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "threw something that is no std::exception";
  }
}

void fail_at_terminate() {
  if (const auto ranks = launched().lock()) {
    ranks->fail(exception_text());
    std::this_thread::sleep_for(last_words);
  }
  terminate_before();
}

// Slurm's shell looks to its programs as if srun had launched each of them as a rank.
std::string advice() {
  if (std::getenv("SLURM_PTY_PORT") == nullptr) return "";
  return ": a shell of `srun --pty` stands in one process of a step; for a run of one process in "
         "it, "
         "unset SLURM_STEP_NUM_TASKS, and for several begin them with mpirun, or srun outside it";
}

std::unique_ptr<Link> make_link(const Launcher& launcher) {
  const char* const asked = std::getenv("SOTTO_MPI_LIBRARY");
  const std::string path = asked ? asked : beside_library("libsotto_" + launcher.mpi + ".so");
  // Never closed: MPI has threads and exit handlers of its own.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    throw SystemFailure(
        fmt::format("{} launched {} processes, and this build cannot join them: {}{}",
                    launcher.name, launcher.size, dlerror(), advice()));
  const auto make = reinterpret_cast<MakeMpiLink>(dlsym(library, "sotto_mpi_link"));
  if (!make) throw SystemFailure(path + " is not an MPI library of sotto");
  std::unique_ptr<Link> link(make());
  if (link->size() != launcher.size)
    throw SystemFailure(fmt::format("{} launched {} processes, and {} finds {}{}", launcher.name,
                                    launcher.size, path, link->size(),
                                    advice().empty() ? ": another MPI's mpirun" : advice()));
  return link;
}

}  // namespace

std::shared_ptr<Ranks> launched_ranks(const RankLimits& limits) {
  if (auto ranks = launched().lock()) return ranks;
  const auto launcher = launcher_of_process();
  std::shared_ptr<Ranks> ranks;
  if (!launcher || launcher->size == 1) {
    ranks = std::make_shared<OneRank>();
  } else {
    check(!terminate_before, "launched_ranks: the run of {} ranks has ended", launcher->size);
    ranks = std::make_shared<MessageRanks>([&] { return make_link(*launcher); }, limits);
    terminate_before = std::set_terminate(fail_at_terminate);
  }
  launched() = ranks;
  if (terminate_before) std::atexit(fail_at_exit);
  return ranks;
}

}  // namespace sotto
