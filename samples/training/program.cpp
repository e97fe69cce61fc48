#include "samples/training/program.h"

#include <optional>

#include "samples/cli/program.h"
#include "samples/training/options.h"
#include "samples/training/run.h"

namespace sotto::samples {

int train_program(Task& task, int argc, const char* const* argv) {
  std::optional<Options> options;
  Data data;
  const int prepared = ending(task.program(), [&] {
    options = parse_options(task, argc, argv);
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
