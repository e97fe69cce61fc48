#include "samples/training/program.h"

#include <memory>
#include <optional>

#include "core/join.h"
#include "core/ranks/launched_ranks.h"
#include "core/ranks/rank_failure.h"
#include "samples/cli/program.h"
#include "samples/training/options.h"
#include "samples/training/run.h"
#include "samples/training/together.h"

namespace sotto::samples {

namespace {

// Options that differ would be different trainings.
void check_command_line(Ranks& ranks, const std::string& program, int argc,
                        const char* const* argv) {
  if (ranks.size() == 1) return;
  const std::vector<std::string> words(argv + 1, argv + argc);
  check_equal(ranks, "command line", fmt::format("\"{} {}\"", program, join(words, " ")));
}

}  // namespace

// An error that one rank meets ends all: what the others wait for does not come.
int train(Task& task, const Options& options, const Data& data,
          const std::shared_ptr<Ranks>& ranks) {
  watch_for_signals(ranks->size() == 1);
  if (ranks->size() == 1) return run(task, options, data, ranks);
  try {
    return run(task, options, data, ranks);
  } catch (const RankFailure&) {
    throw;
  } catch (const std::exception& error) {
    ranks->fail(error.what());  // which prints it
    return failure;
  }
}

int train_program(Task& task, int argc, const char* const* argv) {
  const Body body = [&task](const Options& options, const Data& data, const auto& ranks) {
    return train(task, options, data, ranks);
  };
  return program(task, argc, argv, body);
}

int program(Task& task, int argc, const char* const* argv, const Body& body) {
  std::shared_ptr<Ranks> ranks;  // to the end, at which each waits for the others
  std::optional<Options> options;
  Data data;
  const int prepared = ending(task.program(), [&] {
    ranks = launched_ranks();
    if (ranks->rank() != 0) leave_printing_to_another_process();
    check_command_line(*ranks, task.program(), argc, argv);
    options = parse_options(task, argc, argv, *ranks);
    if (options) data = prepare(task, *options, ranks);
    return 0;
  });
  if (prepared != 0 || !options) return prepared;
  return ending(
      task.program(), [&] { return body(*options, data, ranks); }, failure);
}

}  // namespace sotto::samples
