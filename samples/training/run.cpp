#include "samples/training/run.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <exception>
#include <filesystem>
#include <limits>

#include <nlohmann/json.hpp>

#include "core/io/atomic_file.h"
#include "core/io/utf8.h"
#include "core/ranks/collectives.h"
#include "core/ranks/one_rank.h"
#include "dp/numerics/directed_rounding.h"
#include "dp/sampling/sampler.h"
#include "samples/cli/program.h"
#include "samples/training/comparison.h"
#include "samples/training/counted_ranks.h"
#include "samples/training/progress.h"
#include "samples/training/recorder.h"
#include "samples/training/summary.h"

namespace sotto::samples {

namespace {

volatile std::sig_atomic_t caught_signal = 0;

extern "C" void note_signal(int signal) { caught_signal = signal; }

// The requested interval, or the number of steps in an epoch.
std::int64_t interval(std::int64_t asked, const Settings& settings) {
  if (asked > 0) return asked;
  return std::max<std::int64_t>(1, std::llround(1 / epochs_of(settings, 1)));
}

Ledger open_ledger(const Options& options) {
  const LedgerHeader header = header_of(options.settings);
  const std::string path = options.ledger_file();
  if (path.empty() || !options.settings.privacy) return Ledger(header);
  if (options.resumed) return Ledger::resume(path, *options.resumed->ledger, options.write_ahead);
  if (!options.ledger.empty()) return Ledger::open(path, options.write_ahead);
  // One that counts nothing may be there.
  return std::filesystem::exists(path) ? Ledger::adopt(path, header, options.write_ahead)
                                       : Ledger::create(path, header, options.write_ahead);
}

Ledger make_ledger(const Options& options, const std::shared_ptr<Ranks>& ranks) {
  return Ledger::on_rank_0(ranks, [&] { return open_ledger(options); });
}

// A resumed run that kept statistics keeps them.
bool keeps_statistics(const Options& options) {
  const bool kept = options.resumed && std::filesystem::exists(statistics_path(options.save));
  return options.statistics || kept;
}

Statistics earlier_statistics(const Options& options) {
  if (!options.resumed) return {};
  return load_statistics(statistics_path(options.save), options.resumed->step);
}

class Session {
 public:
  Session(Task& task, const Options& options, const Data& data, const std::shared_ptr<Ranks>& ranks)
      : task_(task),
        data_(data),
        options_(options),
        ranks_(ranks->size() > 1 ? std::make_shared<CountedRanks>(ranks) : nullptr),
        statistics_(leads() ? earlier_statistics(options_) : Statistics{}),
        ledger_(make_ledger(options_, ranks_)),
        trainer_(task, options_.settings, data, ledger_, options_.resumed, ranks_),
        progress_(plan()),
        start_(std::chrono::steady_clock::now()) {
    if (options_.resumed) history_ = options_.resumed->history;
    if (!leads()) return;
    options_.statistics = keeps_statistics(options_);
    if (!options_.resumed) return;
    remove_leftovers(options_.save);  // nobody else goes on with this run
    if (const auto& mark = options_.resumed->ledger)
      lost_releases_ = ledger_.run_releases() - mark->releases;
  }

  int run() {
    introduce();
    if (!options_.resumed) save();  // a failure to save shows before the first release
    standardize();
    try {
      while (!stopped() && step()) {
      }
      finish();
    } catch (const OutOfMemory&) {
      if (!ranks_ && saved_at_ != trainer_.steps_made()) save();
      throw;
    } catch (const SystemFailure& failure) {  // such as of the ledger's disk
      throw SystemFailure(failure.what() + kept_model());
    }
    return stopped() ? 128 + signal_ : 0;
  }

 private:
  Progress::Plan plan() const {
    const Settings& s = options_.settings;
    const std::int64_t steps = planned_steps(s);
    return {.first_step = trainer_.steps_made(),
            .steps = steps,
            .epochs = epochs_of(s, steps),
            .batch = s.batch,
            .measure = trainer_.task().measure(),
            .held_out = held_out(s),
            .secret_measure = secret_measure(trainer_),
            .quiet = options_.quiet || !leads()};
  }
  bool leads() const { return !ranks_ || ranks_->rank() == 0; }
  // True once this process, or any rank, has got a signal. Collective.
  bool stopped() {
    const int own = caught_signal;
    if (signal_ == 0)
      signal_ = std::ranges::max(all_gather(*ranks_or_one(ranks_), "programs: signals", own));
    return signal_ != 0;
  }
  Progress::State state() {
    Progress::State state{.step = trainer_.steps_made(), .epsilon = shown_epsilon()};
    if (!history_.empty()) state.measure = history_.back().measure;
    return state;
  }
  // Epsilon, at most a second old: accounting takes about ten milliseconds.
  std::optional<double> shown_epsilon() {
    constexpr double seconds_between = 1;
    if (seconds() >= accounted_at_ + seconds_between) {
      epsilon_ = trainer_.epsilon();
      accounted_at_ = seconds();
    }
    return epsilon_;
  }
  double seconds() const {
    const std::chrono::duration<double> here = std::chrono::steady_clock::now() - start_;
    return statistics_.statistics().seconds + here.count();
  }

  void introduce() const;
  void tell_changes() const;
  void standardize();
  bool step();
  void evaluate();
  void save();
  void save_as(const std::string& name, const Checkpoint& checkpoint);
  std::string kept_model();
  void tell_end();
  void finish();
  std::optional<double> compare();
  void write_reports(const Outcome& outcome);

  Task& task_;
  const Data& data_;
  Options options_;
  std::shared_ptr<CountedRanks> ranks_;  // null: one process
  int signal_ = 0;                       // that stopped the run
  Recorder statistics_;
  Ledger ledger_;
  Trainer trainer_;
  Progress progress_;
  std::chrono::steady_clock::time_point start_;
  std::vector<Checkpoint::Evaluation> history_;
  std::optional<double> epsilon_;
  double accounted_at_ = -std::numeric_limits<double>::infinity();
  std::int64_t lost_releases_ = 0;
  std::int64_t saved_at_ = -1;  // the step that was saved last
};

// Says, however quiet the run, what differs from the checkpoint.
void Session::tell_changes() const {
  const Checkpoint& before = *options_.resumed;
  const nlohmann::json now = all_settings(trainer_.settings(), task_);
  nlohmann::json known = nlohmann::json::object();  // by the version that wrote the checkpoint
  for (const auto& [name, value] : now.items()) {
    if (before.all_settings.contains(name)) known[name] = value;
  }
  if (const std::string text = changes(known, before.all_settings); !text.empty())
    print("resumed, but {}\n", text);
  constexpr std::array parts = {"training", "test"};
  for (std::size_t k = 0; k < parts.size(); ++k) {
    if (!before.data[k].empty() && before.data[k] != options_.data[k])
      print("resumed, but the {} data are not those of the checkpoint\n", parts[k]);
  }
}

void Session::introduce() const {
  if (options_.resumed) tell_changes();
  if (options_.quiet) return;
  const Settings& s = trainer_.settings();
  print("{} training and {} {} samples, {}\n", s.train_size, s.test_size, held_out(s),
        printable(trainer_.task().data_text()));
  if (!options_.preset.empty()) print("preset {}\n  {}\n", options_.preset, options_.recipe);
  if (!options_.processors.empty()) print("{}\n", options_.processors);
  if (ranks_ && !ranks_->gpus().text.empty()) print("{}\n", ranks_->gpus().text);
  if (const Engine* const engine = trainer_.engine()) {
    print(
        "private training: noise multiplier {}, clip bound {:g}, {} batches of {:.5g} samples "
        "on "
        "average, {} steps\n",
        noise_text(engine->noise_multiplier()), s.clip_bound, name(engine->sampler().sampling()),
        engine->sampler().expected_batch_size(), planned_steps(s));
  } else {
    print("NO PRIVACY: ordinary training of {} steps; the model may reveal training samples\n",
          planned_steps(s));
  }
  if (!options_.save.empty())
    print("the model is saved as {}; {}, to resume from, is SECRET\n", printable(options_.save),
          printable(state_path(options_.save)));
  if (trainer_.engine() && files_of(task_.source()) && options_.ledger_file().empty())
    print(
        "the releases are in no ledger file: with --save or --ledger later trainings know them\n");
  if (options_.resumed) print("resumed at step {}\n", trainer_.steps_made());
  if (options_.resumed && !options_.resumed->verified)
    print("the checkpoint has no checksum: damage to its tensors would not be seen\n");
  if (lost_releases_ > 0) {
    print(
        "the ledger holds {} releases more than the checkpoint: their model was lost, they "
        "stay charged\n",
        lost_releases_);
  }
}

void Session::standardize() {
  const std::int64_t columns = trainer_.standardize();
  if (columns == 0) return;
  save();
  if (leads() && !options_.quiet)
    print("means and deviations of {} columns were released with noise\n", columns);
}

// Returns false when no step is left.
bool Session::step() {
  const bool planned = trainer_.memory_plan() != nullptr;
  const std::optional<StepFacts> facts = trainer_.step();
  if (!facts) return false;
  statistics_.add(*facts);
  if (!planned && trainer_.memory_plan() && !options_.quiet)
    print_text(trainer_.memory_plan()->text());
  const std::int64_t made = trainer_.steps_made();
  if (made % interval(options_.eval_every, options_.settings) == 0) {
    evaluate();
  } else {
    progress_.stepped(state());
  }
  if (made % interval(options_.save_every, options_.settings) == 0) save();
  return true;
}

void Session::evaluate() {
  epsilon_ = trainer_.epsilon();
  accounted_at_ = seconds();
  history_.push_back({trainer_.steps_made(), trainer_.test_measure(), epsilon_});
  if (ranks_) statistics_.gather(*ranks_);
  statistics_.close(trainer_.steps_made());
  progress_.evaluated(state());
}

// Statistics are saved first: they may include steps that the state does not, never the reverse.
// The state is saved before the model, which overwrites a checkpoint of the time when both were one
// file.
void Session::save() {
  if (options_.save.empty()) return;
  Checkpoint checkpoint = trainer_.checkpoint();
  saved_at_ = trainer_.steps_made();
  if (!leads()) return;
  checkpoint.history = history_;
  checkpoint.data = options_.data;
  if (trainer_.engine())
    checkpoint.ledger_file = std::filesystem::absolute(options_.ledger_file()).string();
  write_result(options_.save, [&](const std::string& name) { save_as(name, checkpoint); });
}

void Session::save_as(const std::string& name, const Checkpoint& checkpoint) {
  if (options_.statistics) {
    Statistics statistics = statistics_.statistics();
    statistics.seconds = seconds();
    save_statistics(statistics_path(name), statistics);
  }
  save_checkpoint(state_path(name), checkpoint);
  trainer_.save_model(name);
}

// Saves the model of steps that were paid for, where no further step can be, and says where it is.
// Without its ledger there is no state to go on from.
std::string Session::kept_model() {
  const std::int64_t made = trainer_.steps_made();
  if (options_.save.empty() || !leads() || saved_at_ == made) return "";
  try {
    write_result(options_.save, [&](const std::string& name) { trainer_.save_model(name); });
  } catch (const SystemFailure& failure) {
    return fmt::format("; the model of step {}: {}", made, failure.what());
  }
  return fmt::format("; the model of step {} is saved as {}", made, options_.save);
}

// Says why a run ended that no signal stopped before its last step, or did not begin.
void Session::tell_end() {
  const std::int64_t made = trainer_.steps_made(), steps = planned_steps(options_.settings);
  const std::string why =
      made >= steps
          ? ""
          : fmt::format(": the target epsilon {:g} is spent, other runs' and lost steps included",
                        options_.settings.epsilon.value_or(0));
  if (options_.resumed && options_.resumed->step == made) {
    print("nothing left to do: resumed at step {} of {}{}\n", made, steps, why);
  } else if (made < steps) {
    print("ended after step {} of {}{}\n", made, steps, why);
  }
}

void Session::finish() {
  const std::int64_t made = trainer_.steps_made();
  save();  // before anything else that takes time
  if (history_.empty() || history_.back().step != made) {
    evaluate();
    save();
  }
  Outcome outcome{.measure = history_.back().measure,
                  .epochs = epochs_of(options_.settings, made),
                  .seconds = seconds(),
                  .seconds_here = seconds() - statistics_.statistics().seconds,
                  .steps_here = made - (options_.resumed ? options_.resumed->step : 0),
                  .history = history_,
                  .lost_releases = lost_releases_,
                  .first_on_ledger =
                      leads() && trainer_.engine() && ledger_.releases() == ledger_.run_releases(),
                  .save = options_.save,
                  .ledger = options_.ledger_file(),
                  .saved_statistics = options_.statistics};
  progress_.clear();
  if (signal_ != 0) {
    print("stopped by a signal after step {} of {}{}\n", made, planned_steps(options_.settings),
          options_.save.empty() ? "" : "; continue with --resume " + printable(options_.save));
  } else {
    tell_end();
  }
  if (const Learner* const learner = trainer_.learner(); learner && !options_.quiet) {
    for (const auto& [name, value] : learner->learned()) print("{}: {}\n", name, value);
  }
  std::exception_ptr failure;  // of what follows the private training and must not take its results
  try {
    outcome.ordinary_measure = compare();
  } catch (const std::exception&) {
    if (ranks_) throw;  // the others wait for this one
    failure = std::current_exception();
  }
  const std::string closing = closing_line(outcome, trainer_) + "\n";
  options_.save.empty() ? print_result(closing) : print_text(closing);
  write_reports(outcome);  // last, so that a failure to write them loses nothing else
  if (failure) std::rethrow_exception(failure);
}

std::optional<double> Session::compare() {
  if (!options_.compare || signal_ != 0) return std::nullopt;
  const std::optional<double> ordinary = ordinary_measure(
      task_, trainer_.settings(), data_, [this] { return stopped(); }, ranks_);
  if (!ordinary) return std::nullopt;
  const Measure measure = task_.measure();
  print("without privacy: {} {} {}, which is NOT PRIVATE\n", held_out(trainer_.settings()),
        measure.name, text_of(measure, *ordinary));
  return ordinary;
}

void Session::write_reports(const Outcome& outcome) {
  if (options_.report.empty() && options_.json.empty()) return;
  TrainingReport report = make_report(outcome, trainer_, statistics_.statistics());
  if (!leads()) return;
  if (ranks_) report.communication = communication(options_.processors, *ranks_, outcome);
  write_texts({{options_.report, to_html(report)}, {options_.json, json_text(to_json(report))}});
}

}  // namespace

void watch_for_signals(bool alone) {
  struct sigaction action = {}, before = {};
  action.sa_handler = note_signal;
  // without SA_RESETHAND: later output may raise it repeatedly
  sigaction(SIGPIPE, &action, nullptr);
  sigaction(SIGUSR1, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(SIGUSR1, &action, nullptr);
  if (alone) action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    sigaction(signal, nullptr, &before);
    // The caller, such as nohup, chose to ignore the signal.
    if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
}

int run(Task& task, const Options& options, const Data& data, const std::shared_ptr<Ranks>& ranks) {
  return Session(task, options, data, ranks).run();
}

}  // namespace sotto::samples
