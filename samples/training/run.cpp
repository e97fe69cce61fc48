#include "samples/training/run.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <exception>
#include <filesystem>
#include <limits>

#include <nlohmann/json.hpp>

#include "core/io/atomic_file.h"
#include "core/io/utf8.h"
#include "core/ranks/collectives.h"
#include "dp/engine/training_checkpoint.h"
#include "dp/numerics/directed_rounding.h"
#include "dp/sampling/sampler.h"
#include "memory/planning/planner.h"
#include "samples/cli/program.h"
#include "samples/cli/progress.h"
#include "samples/cli/stop_signals.h"
#include "samples/report/counted_ranks.h"
#include "samples/report/recorder.h"
#include "samples/training/summary.h"
#include "samples/training/trained_model.h"

namespace sotto::samples {

namespace {

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

class Session final : public TrainingObserver {
 public:
  Session(Task& task, const Options& options, const Data& data, const std::shared_ptr<Ranks>& ranks)
      : task_(task),
        data_(data),
        options_(options),
        ranks_(ranks->size() > 1 ? std::make_shared<CountedRanks>(ranks) : nullptr),
        ledger_(make_ledger(options_, ranks_)),
        model_(task, options_.settings, data, ranks_) {
    if (options_.resumed && options_.resumed->section)
      history_ = options_.resumed->section->history;
    TrainOptions& of_training = model_.options();
    of_training.observer = this;
    of_training.evaluate = [this](std::int64_t /*step*/) { evaluate(); };
    of_training.evaluate_every = interval(options_.eval_every, options_.settings);
    of_training.save = options_.save.empty() ? "" : state_path(options_.save);
    if (options_.locks.size() > 1) of_training.lock = options_.locks[1];
    of_training.save_every = interval(options_.save_every, options_.settings);
    of_training.tell = [this](const std::string& line) { tell(line); };
  }

  int run();

  void begins(const TrainingRun& run, bool verified) override;
  bool goes_on() override;
  void stepped(const StepReport& report) override;
  void save(const std::string& path, const TensorFile& checkpoint) override;
  void failed(const SystemFailure& failure) override;
  void ends() override;

 private:
  bool leads() const { return !ranks_ || ranks_->rank() == 0; }
  // True once this process, or any rank, has got a signal. Collective.
  bool stopped() {
    if (signal_ != 0) return true;
    signal_ = caught_signal();
    if (ranks_) signal_ = std::ranges::max(all_gather(*ranks_, "programs: signals", signal_));
    return signal_ != 0;
  }
  std::optional<double> epsilon() const {
    if (run_->engine() == nullptr || !leads()) return std::nullopt;
    return run_->engine()->epsilon();
  }
  Progress::State state() {
    Progress::State state{.step = run_->steps_made(), .epsilon = shown_epsilon()};
    if (!history_.empty()) state.measure = history_.back().measure;
    return state;
  }
  // Epsilon, at most a second old: accounting takes about ten milliseconds.
  std::optional<double> shown_epsilon() {
    constexpr double seconds_between = 1;
    if (seconds() >= accounted_at_ + seconds_between) {
      epsilon_ = epsilon();
      accounted_at_ = seconds();
    }
    return epsilon_;
  }
  double seconds() const {
    const std::chrono::duration<double> here = std::chrono::steady_clock::now() - start_;
    return statistics_->statistics().seconds + here.count();
  }

  Progress::Plan plan() const;
  void continue_saved();
  void tell(const std::string& line);
  void tell_changes() const;
  void introduce(bool verified) const;
  void evaluate();
  ProgramSection section() const;
  std::string kept_model();
  Outcome outcome() const;
  std::optional<double> compare();
  void write_reports(const Outcome& outcome);

  Task& task_;
  const Data& data_;
  Options options_;
  std::shared_ptr<CountedRanks> ranks_;  // null: one process
  int signal_ = 0;                       // that stopped the run
  Ledger ledger_;
  TrainedModel model_;
  const TrainingRun* run_ = nullptr;  // while it runs
  std::optional<Recorder> statistics_;
  std::optional<Progress> progress_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::vector<Evaluation> history_;
  std::optional<double> epsilon_;
  double accounted_at_ = -std::numeric_limits<double>::infinity();
  std::int64_t first_step_ = 0, lost_releases_ = 0;
  std::int64_t means_ = 0;      // releases of means that were told
  std::int64_t saved_at_ = -1;  // the step that was saved last
  bool planned_ = false;        // whether the memory plan was told
};

int Session::run() {
  try {
    model_.train(ledger_);
  } catch (const std::invalid_argument& error) {
    if (run_ != nullptr || !options_.resumed) throw;
    throw SystemFailure(std::string("the checkpoint does not fit: ") + error.what());
  }
  return stopped() ? 128 + signal_ : 0;
}

Progress::Plan Session::plan() const {
  const Settings& s = options_.settings;
  const std::int64_t steps = planned_steps(s);
  return {.first_step = first_step_,
          .steps = steps,
          .epochs = epochs_of(s, steps),
          .batch = s.batch,
          .measure = task_.facts().measure,
          .held_out = held_out(s),
          .secret_measure = secret_measure(model_),
          .quiet = options_.quiet || !leads()};
}

// A resumed run that kept statistics keeps them.
void Session::continue_saved() {
  const std::string path = statistics_path(options_.save);
  options_.statistics = options_.statistics || std::filesystem::exists(path);
  statistics_.emplace(load_statistics(path, first_step_));
  remove_leftovers(options_.save);  // nobody else goes on with this run
  if (const auto& mark = options_.resumed->ledger)
    lost_releases_ = ledger_.run_releases() - mark->releases;
}

void Session::begins(const TrainingRun& run, bool verified) {
  run_ = &run;
  first_step_ = run.steps_made();
  if (run.engine() != nullptr && leads()) means_ = run.engine()->means_released();
  statistics_.emplace(Statistics{});
  if (options_.resumed && leads()) continue_saved();
  progress_.emplace(plan());
  start_ = std::chrono::steady_clock::now();
  introduce(verified);
}

// The library's lines; of changes, those that a section of this program does not know better.
void Session::tell(const std::string& line) {
  if (progress_) progress_->clear();
  if (run_ != nullptr || !options_.resumed->section) print("{}\n", line);
}

// Says, however quiet the run, what differs from the checkpoint.
void Session::tell_changes() const {
  if (!options_.resumed->section)
    return print("{} has no section of sotto-{}: the command line's settings are used\n",
                 printable(state_path(options_.save)), task_.facts().program);
  const ProgramSection& before = *options_.resumed->section;
  const nlohmann::json now = all_settings(model_.settings(), task_);
  if (const std::string text = changes(now, before.all_settings); !text.empty())
    print("resumed, but {}\n", text);
  constexpr std::array parts = {"training", "test"};
  for (std::size_t k = 0; k < parts.size(); ++k) {
    if (!before.data[k].empty() && before.data[k] != options_.data[k])
      print("resumed, but the {} data are not those of the checkpoint\n", parts[k]);
  }
}

void Session::introduce(bool verified) const {
  if (options_.resumed) tell_changes();
  if (options_.quiet) return;
  const Settings& s = model_.settings();
  print("{} training and {} {} samples, {}\n", s.train_size, s.test_size, held_out(s),
        printable(data_text(task_.facts())));
  if (!options_.preset.empty()) print("preset {}\n  {}\n", options_.preset, options_.recipe);
  if (!options_.processors.empty()) print("{}\n", options_.processors);
  if (ranks_ && !ranks_->gpus().text.empty()) print("{}\n", ranks_->gpus().text);
  if (const Engine* const engine = run_->engine()) {
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
  if (run_->engine() && files_of(task_.facts().source) && options_.ledger_file().empty())
    print(
        "the releases are in no ledger file: with --save or --ledger later trainings know them\n");
  if (options_.resumed) print("resumed at step {}\n", run_->steps_made());
  if (options_.resumed && !verified)
    print("the checkpoint has no checksum: damage to its tensors would not be seen\n");
  if (lost_releases_ > 0) {
    print(
        "the ledger holds {} releases more than the checkpoint: their model was lost, they "
        "stay charged\n",
        lost_releases_);
  }
}

bool Session::goes_on() {
  const Engine* const engine = run_->engine();
  const std::int64_t means = engine != nullptr && leads() ? engine->means_released() : 0;
  if (means > std::exchange(means_, means) && !options_.quiet)
    print("means and deviations of {} columns were released with noise\n",
          model_.options().standardize->ranges.size());
  return !stopped();
}

void Session::stepped(const StepReport& report) {
  statistics_->add(report);
  if (!planned_ && run_->memory_plan() != nullptr && !options_.quiet)
    print_text(run_->memory_plan()->text());
  planned_ = run_->memory_plan() != nullptr;
  if (report.step % model_.options().evaluate_every != 0) progress_->stepped(state());
}

void Session::evaluate() {
  if (!history_.empty() && history_.back().step == run_->steps_made()) return;  // before it resumed
  epsilon_ = epsilon();
  accounted_at_ = seconds();
  history_.push_back({run_->steps_made(), model_.measure(data_), epsilon_});
  if (ranks_) statistics_->gather(*ranks_);
  statistics_->close(run_->steps_made());
  progress_->evaluated(state());
}

ProgramSection Session::section() const {
  ProgramSection section{.program = task_.facts().program,
                         .all_settings = all_settings(options_.settings, task_),
                         .settings = options_.settings,
                         .step = run_->steps_made(),
                         .data = options_.data,
                         .history = history_};
  if (const Engine* const engine = run_->engine()) {
    section.noise_multiplier = engine->noise_multiplier();
    section.ledger_file = std::filesystem::absolute(options_.ledger_file()).string();
  }
  return section;
}

// Statistics are saved first: they may include steps that the state does not, never the reverse.
void Session::save(const std::string& /*path*/, const TensorFile& checkpoint) {
  saved_at_ = run_->steps_made();
  TensorFile file = checkpoint;
  file.metadata[program_key] = to_json(section());
  write_result(options_.save, [&](const std::string& name) {
    if (options_.statistics) {
      Statistics statistics = statistics_->statistics();
      statistics.seconds = seconds();
      save_statistics(statistics_path(name), statistics);
    }
    save_safetensors(state_path(name), file);
    model_.save(name, run_->engine());
  });
}

// Saves the model of steps that were paid for, where no further step can be, and says where it is.
// Without its ledger there is no state to go on from.
std::string Session::kept_model() {
  const std::int64_t made = run_->steps_made();
  if (options_.save.empty() || !leads() || saved_at_ == made) return "";
  try {
    write_result(options_.save,
                 [&](const std::string& name) { model_.save(name, run_->engine()); });
  } catch (const SystemFailure& failure) {
    return fmt::format("; the model of step {}: {}", made, failure.what());
  }
  return fmt::format("; the model of step {} is saved as {}", made, options_.save);
}

void Session::failed(const SystemFailure& failure) {
  throw SystemFailure(failure.what() + kept_model());
}

Outcome Session::outcome() const {
  const std::int64_t made = run_->steps_made();
  return {
      .measure = history_.back().measure,
      .epsilon = epsilon(),
      .epochs = epochs_of(options_.settings, made),
      .seconds = seconds(),
      .seconds_here = seconds() - statistics_->statistics().seconds,
      .steps_here = made - first_step_,
      .history = history_,
      .lost_releases = lost_releases_,
      .first_on_ledger = leads() && run_->engine() && ledger_.releases() == ledger_.run_releases(),
      .save = options_.save,
      .ledger = options_.ledger_file(),
      .saved_statistics = options_.statistics};
}

void Session::ends() {
  Outcome outcome = this->outcome();
  progress_->clear();
  if (signal_ != 0)
    print("stopped by a signal after step {} of {}{}\n", run_->steps_made(),
          planned_steps(options_.settings),
          options_.save.empty() ? "" : "; continue with --resume " + printable(options_.save));
  if (const TaskLearner* const learner = model_.learner(); learner && !options_.quiet) {
    for (const auto& [name, value] : learner->learned()) print("{}: {}\n", name, value);
  }
  std::exception_ptr failure;  // of what follows the private training and must not take its results
  try {
    outcome.ordinary_measure = compare();
  } catch (const std::exception&) {
    if (ranks_) throw;  // the others wait for this one
    failure = std::current_exception();
  }
  const std::string closing = closing_line(outcome, model_) + "\n";
  options_.save.empty() ? print_result(closing) : print_text(closing);
  write_reports(outcome);  // last, so that a failure to write them loses nothing else
  if (failure) std::rethrow_exception(failure);
}

std::optional<double> Session::compare() {
  if (!options_.compare || signal_ != 0) return std::nullopt;
  const std::optional<double> ordinary = ordinary_measure(
      task_, model_.settings(), data_, [this] { return stopped(); }, ranks_);
  if (!ordinary) return std::nullopt;
  const Measure measure = task_.facts().measure;
  print("without privacy: {} {} {}, which is NOT PRIVATE\n", held_out(model_.settings()),
        measure.name, text_of(measure, *ordinary));
  return ordinary;
}

void Session::write_reports(const Outcome& outcome) {
  if (options_.report.empty() && options_.json.empty()) return;
  TrainingReport report = make_report(outcome, model_, *run_, statistics_->statistics());
  if (!leads()) return;
  if (ranks_) report.communication = communication(options_.processors, *ranks_, outcome);
  write_texts({{options_.report, to_html(report)}, {options_.json, json_text(to_json(report))}});
}

}  // namespace

int run(Task& task, const Options& options, const Data& data, const std::shared_ptr<Ranks>& ranks) {
  return Session(task, options, data, ranks).run();
}

}  // namespace sotto::samples
