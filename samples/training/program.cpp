#include "samples/training/program.h"

#include <filesystem>
#include <memory>
#include <optional>

#include "core/allocator/allocator.h"
#include "core/io/atomic_file.h"
#include "core/join.h"
#include "core/ranks/collectives.h"
#include "core/ranks/launched_ranks.h"
#include "core/ranks/rank_failure.h"
#include "core/ranks/rank_threads.h"
#include "core/threads/parallel.h"
#include "dp/ledger/ledger_text.h"
#include "samples/cli/program.h"
#include "samples/cli/stop_signals.h"
#include "samples/training/dry_run.h"
#include "samples/training/options.h"
#include "samples/training/run.h"
#include "samples/training/trained_model.h"

namespace sotto::samples {

namespace {

// Throws std::invalid_argument on every rank unless all pass the same text about `what`; the
// message has the texts if they are to be shown. Collective.
enum class Shown { yes, no };
void check_equal(Ranks& ranks, const std::string& what, const std::string& text, Shown shown) {
  const std::vector<std::string> all = gather(ranks, "programs: " + what, text);
  on_rank_0(ranks, "programs: " + what, [&] {
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      const std::string& other = all[rank];
      check(shown == Shown::yes || other == text, "{}: not the same on rank {} as on rank 0", what,
            rank);
      check(other == text, "{}: {} on rank {}, and {} on rank 0", what, other, rank, text);
    }
  });
}

// Options that differ would be different trainings.
void check_command_line(Ranks& ranks, const std::string& program, int argc,
                        const char* const* argv) {
  if (ranks.size() == 1) return;
  const std::vector<std::string> words(argv + 1, argv + argc);
  check_equal(ranks, "command line", fmt::format("\"{} {}\"", program, join(words, " ")),
              Shown::yes);
}

// Hashes of all samples and units: of the training data, with other data that the task has read,
// and of the test data.
std::array<std::string, 2> fingerprints(const Data& data) {
  return {fmt::format("{:016x}", data.train.hash(data.hash_of_rest)),
          fmt::format("{:016x}", data.test.hash())};
}

// Refuses the ledger of other units. One beside a new run's name was left by a run that ended
// before its first release (options.cpp).
void check_population(const Options& options, std::int64_t units) {
  const std::string ledger = options.ledger_file();
  std::error_code none;
  if (!options.settings.privacy || !std::filesystem::exists(ledger, none)) return;
  const auto counted = parse_ledger(read_file(ledger), ledger).contents.population;
  if (!counted || *counted == units) return;
  const bool given = !options.ledger.empty(), left_over = !given && !options.resumed;
  fail(fmt::format("{}: {} counts {} units and the training data have {}{}",
                   left_over ? "--save"
                   : given   ? "--ledger"
                             : "--resume",
                   ledger, *counted, units,
                   left_over ? ": it was left by a run on other data and counts no release: remove "
                               "it, or give another name"
                             : ": are some kept for the test?"));
}

Data validation_of(const Data& data, const Settings& settings) {
  auto [train, validation] = data.train.split(1 - settings.validation, settings.seed);
  check(train.size() > 0 && validation.size() > 0,
        "--validation: {} of {} units leaves {} training and {} validation samples",
        settings.validation, data.train.unit_count(), train.size(), validation.size());
  return {.train = std::move(train), .test = std::move(validation)};
}

// One rank's data, and the settings that depend on them. Rank 0 lets the task keep what it loaded,
// before rows are held out.
Data load_data(Task& task, Options& options, bool leads) {
  allocator(options.settings.device).set_limit(options.settings.memory.limit);
  Settings& settings = options.settings;
  Settings requested = settings;
  requested.train_size = settings.requested_train_size;
  requested.test_size = settings.requested_test_size;
  Data data = loaded("--train-size, --test-size", [&] { return task.load(requested); });
  if (leads && data.keep && !options.dry_run) data.keep(data);
  if (settings.validation > 0) data = validation_of(data, settings);
  const std::int64_t units = data.train.unit_count();
  check(units > 1 || data.train.size() == 1,
        "--data: all {} samples belong to one unit, whose model would be noise", data.train.size());
  settings.train_size = settings.privacy ? units : data.train.size();
  settings.test_size = data.test.size();
  if (const auto fit = task.facts().fit_to_data) fit(settings);
  validate(settings);
  return data;
}

// Loads the data that the options name, on every rank. Throws SystemFailure when they cannot be
// read, and std::invalid_argument for settings that do not fit them, and for data that differ
// between ranks; no file is touched before.
Data prepare(Task& task, Options& options, const std::shared_ptr<Ranks>& ranks) {
  if (ranks->size() > 1) {
    options.processors = share_processors(*ranks, options.threads);
  } else if (options.threads > 0) {
    set_thread_count(options.threads);
  }
  Data data;
  on_all_ranks(*ranks, "programs: data",
               [&] { data = load_data(task, options, ranks->rank() == 0); });
  if (ranks->size() > 1 || !options.save.empty()) options.data = fingerprints(data);
  check_equal(*ranks, "--data", join(options.data, " "), Shown::no);
  on_rank_0(*ranks, "programs: population",
            [&] { check_population(options, data.train.unit_count()); });
  if (options.resumed) return data;
  // Finds mistakes in the settings of a new run before the run has a ledger.
  const auto several = ranks->size() > 1 ? ranks : nullptr;
  on_all_ranks(*ranks, "programs: first engine", [&] {
    const Ledger ledger =
        Ledger::on_rank_0(several, [&] { return Ledger(header_of(options.settings)); });
    TrainedModel(task, options.settings, data, several).run(ledger);
  });
  return data;
}

}  // namespace

// An error that one rank meets ends all: what the others wait for does not come.
int train(Task& task, const Options& options, const Data& data,
          const std::shared_ptr<Ranks>& ranks) {
  watch_for_signals(ranks->size() == 1);
  const auto start = options.dry_run ? dry_run : run;
  if (ranks->size() == 1) return start(task, options, data, ranks);
  try {
    return start(task, options, data, ranks);
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
  const int prepared = ending(task.facts().program, [&] {
    ranks = launched_ranks();
    if (ranks->rank() != 0) leave_printing_to_another_process();
    check_command_line(*ranks, task.facts().program, argc, argv);
    options = parse_options(task, argc, argv, *ranks);
    if (options) data = prepare(task, *options, ranks);
    return 0;
  });
  if (prepared != 0 || !options) return prepared;
  return ending(
      task.facts().program, [&] { return body(*options, data, ranks); }, failure);
}

}  // namespace sotto::samples
