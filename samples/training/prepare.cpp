// The data of a run, and the settings that depend on them: prepare() of samples/training/run.h.
#include <filesystem>

#include "core/allocator/allocator.h"
#include "core/io/atomic_file.h"
#include "core/join.h"
#include "core/ranks/collectives.h"
#include "core/ranks/rank_threads.h"
#include "core/threads/parallel.h"
#include "dp/ledger/ledger_text.h"
#include "samples/cli/program.h"
#include "samples/training/run.h"
#include "samples/training/together.h"

namespace sotto::samples {

namespace {

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
  if (leads) task.keep(data);
  if (settings.validation > 0) data = validation_of(data, settings);
  const std::int64_t units = data.train.unit_count();
  check(units > 1 || data.train.size() == 1,
        "--data: all {} samples belong to one unit, whose model would be noise", data.train.size());
  settings.train_size = settings.privacy ? units : data.train.size();
  settings.test_size = data.test.size();
  task.fit_to_data(settings);
  validate(settings);
  return data;
}

}  // namespace

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
  on_rank_0(*ranks, "programs: ledger",
            [&] { check_population(options, data.train.unit_count()); });
  if (options.resumed) return data;
  // Finds mistakes in the settings of a new run before the run has a ledger.
  on_all_ranks(*ranks, "programs: first engine", [&] {
    const auto several = ranks->size() > 1 ? ranks : nullptr;
    Ledger ledger = Ledger::on_rank_0(several, [&] { return Ledger(header_of(options.settings)); });
    Trainer(task, options.settings, data, ledger, std::nullopt, several);
  });
  return data;
}

}  // namespace sotto::samples
