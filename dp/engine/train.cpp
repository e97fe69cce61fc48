#include "dp/engine/train.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "core/allocator/memory_usage.h"
#include "core/io/file_lock.h"
#include "core/ranks/collectives.h"
#include "core/ranks/one_rank.h"
#include "dp/engine/training_checkpoint.h"
#include "dp/engine/training_run.h"
#include "dp/engine/unit_owners.h"
#include "memory/planning/planner.h"
#include "nn/data/batch_loader.h"

namespace sotto {

namespace {

bool has_checkpoint(const TrainOptions& options) {
  return !options.save.empty() && std::filesystem::exists(options.save);
}

Ledger open_ledger(const std::string& path, const TrainOptions& options) {
  if (has_checkpoint(options)) return Ledger::resume(path, checkpoint_mark(options.save));
  if (std::filesystem::exists(path)) return Ledger::open(path);
  return Ledger::create(path, {.unit = options.engine.unit});
}

// Returns whether an earlier run left its ledger or its checkpoint where this rank looks for them.
bool has_files(const std::string& ledger, const TrainOptions& options) {
  std::error_code unseen;
  return std::filesystem::exists(ledger, unseen) ||
         (!options.save.empty() && std::filesystem::exists(options.save, unseen));
}

// Returns, on rank 0, the ranks that see files of an earlier run: on another host, the disk may be
// another one. Collective.
std::vector<std::size_t> ranks_with_files(Ranks& ranks, const std::string& ledger,
                                          const TrainOptions& options) {
  std::vector<std::size_t> found;
  const std::vector<bool> all = gather(ranks, "train: files", has_files(ledger, options));
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank]) found.push_back(rank);
  return found;
}

// Excludes another training of this name, from the first look at its files to the end.
std::shared_ptr<const void> lock_of(const TrainOptions& options, Ranks& ranks) {
  std::shared_ptr<const void> lock;
  if (options.save.empty()) return lock;
  on_rank_0(ranks, "train: lock", [&] {
    lock = options.lock ? options.lock : lock_name(options.save);
    if (!lock)
      throw SystemFailure(fmt::format("train: another training uses {} now", options.save));
  });
  return lock;
}

// A training from its checkpoint, if there is one, to its end, with the name locked.
class Loop {
 public:
  Loop(TrainingRun& run, const OnStep& on_step)
      : run_(run), options_(run.options()), ranks_(*run.ranks()), on_step_(on_step) {}

  // `saved`: whether there is a checkpoint.
  void make(bool saved);

 private:
  void tell(const std::string& line) const;
  void tell_end(bool resumed) const;
  void save();
  void evaluate();
  bool goes_on();
  bool stepped(const StepReport& report);
  bool make_steps();
  void end();

  TrainingRun& run_;
  const TrainOptions& options_;
  Ranks& ranks_;
  const OnStep& on_step_;
  TrainingObserver nobody_;
  TrainingObserver& observer_ = options_.observer != nullptr ? *options_.observer : nobody_;
  std::int64_t saved_at_ = -1, evaluated_at_ = -1;  // steps
};

void Loop::tell(const std::string& line) const {
  if (ranks_.rank() != 0) return;
  if (options_.tell) return options_.tell(line);
  fmt::print(stderr, "sotto: {}\n", line);
}

// Says why no step is left; nothing if all were made in this call.
void Loop::tell_end(bool resumed) const {
  const std::int64_t made = run_.steps_made(), steps = options_.engine.steps;
  const std::string spent =
      made >= steps
          ? ""
          : fmt::format(": the target epsilon {} is spent, other runs' and lost steps included",
                        options_.engine.target_epsilon.value_or(0));
  if (resumed) {
    tell(fmt::format("nothing left to do: resumed at step {} of {}{}", made, steps, spent));
  } else if (made < steps) {
    tell(fmt::format("ended after step {} of {}{}", made, steps, spent));
  }
}

void Loop::save() {
  if (options_.save.empty()) return;
  const TensorFile file = run_.checkpoint();
  saved_at_ = run_.steps_made();
  on_rank_0(ranks_, "save_checkpoint", [&] { observer_.save(options_.save, file); });
}

void Loop::evaluate() {
  evaluated_at_ = run_.steps_made();
  run_.evaluate();
}

bool Loop::goes_on() {
  if (options_.observer == nullptr) return true;
  const auto all = all_gather(ranks_, "train: goes on", std::uint8_t{observer_.goes_on()});
  return std::find(all.begin(), all.end(), 0) == all.end();
}

bool Loop::stepped(const StepReport& report) {
  observer_.stepped(report);
  if (options_.evaluate && options_.evaluate_every > 0 &&
      report.step % options_.evaluate_every == 0)
    evaluate();
  const bool on = broadcast(ranks_, "train: on_step",
                            [&] { return !on_step_ || on_step_(report, *run_.engine()); });
  if (on && report.step % options_.save_every == 0) save();
  return on;
}

// Makes the steps that are left. Returns false if it was stopped before.
bool Loop::make_steps() {
  while (goes_on()) {
    const std::optional<StepReport> report = run_.step();
    if (!report) return true;
    if (!stepped(*report)) return false;
  }
  return false;
}

// The last step is saved before anything else that takes time.
void Loop::end() {
  if (saved_at_ != run_.steps_made()) save();
  if (!options_.evaluate || evaluated_at_ == run_.steps_made()) return;
  evaluate();
  save();
}

void Loop::make(bool saved) {
  const bool verified = saved && run_.load(options_.save);
  if (run_.engine() != nullptr)
    for (const std::string& change : run_.engine()->changes()) tell("resumed, but " + change);
  observer_.begins(run_, verified);
  if (!saved) save();  // a failure to save shows before the first release
  if (run_.standardize()) save();
  const std::int64_t first = run_.steps_made();
  try {
    const bool to_the_end = make_steps();
    end();
    if (to_the_end) tell_end(saved && run_.steps_made() == first);
    observer_.ends();
  } catch (const OutOfMemory&) {
    if (ranks_.size() == 1 && saved_at_ != run_.steps_made()) save();
    throw;
  } catch (const SystemFailure& failure) {
    observer_.failed(failure);
    throw;
  }
}

bool is_saved(Ranks& ranks, const TrainOptions& options) {
  return broadcast(ranks, "train: checkpoint", [&] { return has_checkpoint(options); });
}

PrivacyStatement train_locked(nn::Module& model, nn::Optimizer& optimizer, const Dataset& data,
                              const Ledger& ledger, Ranks& ranks, const TrainOptions& options,
                              const TrainLoss& loss, const OnStep& on_step) {
  const bool saved = is_saved(ranks, options);
  check(!saved || ledger.resumed(), "train: {} is there, and the ledger is not resumed from it",
        options.save);
  TrainingRun run(model, optimizer, data, ledger, options, loss);
  // What throws on one rank alone, such as an observer, ends the run of all.
  abort_on_error(ranks, [&] { Loop(run, on_step).make(saved); });
  if (ranks.size() == 1) return run.engine()->report();
  // JSON has no infinity.
  const auto [text, planned] = broadcast(ranks, "train: statement", [&] {
    const PrivacyStatement statement = run.engine()->report();
    return std::pair(to_json(statement), statement.epsilon_planned.value_or(-1));
  });
  PrivacyStatement statement = statement_from_json(text);
  statement.epsilon_planned = planned < 0 ? std::nullopt : std::optional(planned);
  return statement;
}

void check_options(const TrainOptions& options) {
  check(options.engine.steps >= 1 && options.save_every >= 1,
        "train: {} steps, with a checkpoint every {}", options.engine.steps, options.save_every);
  check(options.evaluate_every >= 0, "train: an evaluation every {} steps", options.evaluate_every);
  check(!options.views || (options.views->count >= 1 && options.views->make),
        "train: {} views of each sample, {}", options.views ? options.views->count : 0,
        options.views && options.views->make ? "made" : "which nothing makes");
}

}  // namespace

PrivacyStatement train(nn::Module& model, nn::Optimizer& optimizer, const Dataset& data,
                       const std::string& ledger, const TrainOptions& options,
                       const TrainLoss& loss, const OnStep& on_step) {
  check_options(options);
  const auto ranks = ranks_or_one(options.engine.ranks);
  const auto lock = lock_of(options, *ranks);
  const auto open = [&, seen_by = ranks_with_files(*ranks, ledger, options)] {
    check(seen_by.empty() || has_files(ledger, options),
          "train: {} or {} is there for rank {}, and not for rank 0, which would begin a ledger of "
          "its own: earlier releases would not count",
          ledger, options.save.empty() ? "its checkpoint" : options.save, seen_by.front());
    return open_ledger(ledger, options);
  };
  return train_locked(model, optimizer, data, Ledger::on_rank_0(options.engine.ranks, open), *ranks,
                      options, loss, on_step);
}

PrivacyStatement train(nn::Module& model, nn::Optimizer& optimizer, const Dataset& data,
                       const Ledger& ledger, const TrainOptions& options, const TrainLoss& loss,
                       const OnStep& on_step) {
  check_options(options);
  const auto ranks = ranks_or_one(given_ranks(options.engine, ledger));
  const auto lock = lock_of(options, *ranks);
  return train_locked(model, optimizer, data, ledger, *ranks, options, loss, on_step);
}

void train(nn::Module& model, nn::Optimizer& optimizer, const Dataset& data, NoPrivacy no_privacy,
           const TrainOptions& options, const TrainLoss& loss) {
  check_options(options);
  const auto ranks = ranks_or_one(options.engine.ranks);
  const auto lock = lock_of(options, *ranks);
  TrainingRun run(model, optimizer, data, no_privacy, options, loss);
  const OnStep no_hook;
  Loop(run, no_hook).make(is_saved(*ranks, options));
}

}  // namespace sotto
