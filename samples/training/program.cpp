#include "samples/training/program.h"

#include <optional>

#include <sotto/core/ranks/launcher.h>
#include "samples/cli/program.h"
#include "samples/training/options.h"
#include "samples/training/run.h"

namespace sotto::samples {

namespace {

// Processes that were launched together would each train alone, and write the same files.
void check_alone() {
  const std::optional<Launcher> launcher = launcher_of_process();
  if (launcher && launcher->size > 1)
    fail(fmt::format("one of {} processes of {}: this program trains in one process",
                     launcher->size, launcher->name));
}

}  // namespace

int train_program(Task& task, int argc, const char* const* argv) {
  std::optional<Options> options;
  Data data;
  const int prepared = ending(task.program(), [&] {
    options = parse_options(task, argc, argv);
    if (options) check_alone();
    if (options) data = prepare(task, *options);
    return 0;
  });
  if (prepared != 0 || !options) return prepared;
  const auto body = [&] {
    watch_for_signals();
    return run(task, *options, data);
  };
  return ending(task.program(), body, failure);
}

}  // namespace sotto::samples
