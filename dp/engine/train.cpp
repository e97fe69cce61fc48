#include "dp/engine/train.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "core/io/file_lock.h"
#include "core/overloaded.h"
#include "core/ranks/collectives.h"
#include "core/ranks/one_rank.h"
#include "dp/engine/training_checkpoint.h"
#include "dp/engine/unit_owners.h"
#include "memory/planning/planner.h"
#include "nn/data/batch_loader.h"

namespace sotto {

namespace {

Ledger open_ledger(const std::string& path, const TrainOptions& options) {
  if (!options.save.empty() && std::filesystem::exists(options.save))
    return Ledger::resume(path, checkpoint_mark(options.save));
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
    lock = lock_name(options.save);
    if (!lock)
      throw SystemFailure(fmt::format("train: another training uses {} now", options.save));
  });
  return lock;
}

void tell(const TrainOptions& options, const Engine& engine, const std::string& line) {
  if (engine.ranks()->rank() != 0) return;
  if (options.tell) return options.tell(line);
  fmt::print(stderr, "sotto: {}\n", line);
}

// Says why no step is left; nothing if all were made in this call.
void tell_end(const TrainOptions& options, const Engine& engine, bool resumed) {
  const std::int64_t made = engine.steps_made(), steps = options.engine.steps;
  const std::string spent =
      made >= steps
          ? ""
          : fmt::format(": the target epsilon {} is spent, other runs' and lost steps included",
                        options.engine.target_epsilon.value_or(0));
  if (resumed) {
    tell(options, engine,
         fmt::format("nothing left to do: resumed at step {} of {}{}", made, steps, spent));
  } else if (made < steps) {
    tell(options, engine, fmt::format("ended after step {} of {}{}", made, steps, spent));
  }
}

Var loss_of(nn::Module& model, const TrainLoss& loss, Tape& tape, const Dataset& batch) {
  return std::visit(
      Overloaded{
          [&](const LabelLoss& f) { return f(model(tape.input(batch.inputs)), batch.targets); },
          [&](const ValueLoss& f) {
            return f(model(tape.input(batch.inputs)), tape.input(batch.targets));
          },
          [&](const BatchLoss& f) { return f(tape, batch); }},
      loss);
}

void plan_standardizing(nn::Module& model, const StandardizeOptions& standardize,
                        EngineOptions& engine) {
  const PlannedMeans planned = planned_means(standardize);
  const std::vector<Parameter*> all = model.parameters();
  check(std::find(all.begin(), all.end(), standardize.layer->mean.get()) != all.end(),
        "train: the layer that standardises is not part of the model");
  engine.planned_means.push_back(planned);
}

// The loader must outlive the engine.
EngineOptions options_of_engine(nn::Module& model, const TrainOptions& options,
                                BatchLoader& loader) {
  EngineOptions all = options.engine;
  if (!all.prefetch_rows)
    all.prefetch_rows = [&](std::span<const std::int64_t> rows) { loader.prefetch(rows); };
  if (options.standardize) plan_standardizing(model, *options.standardize, all);
  return all;
}

// Makes the steps that are left. Returns false if `stepped` did, which ends it.
bool make_steps(Engine& engine, const Engine::Loss& loss,
                const std::function<bool(const StepReport& report)>& stepped) {
  while (const std::optional<StepReport> report = engine.next_step(loss)) {
    if (!stepped(*report)) return false;
  }
  return true;
}

// train() with the name locked.
PrivacyStatement train_locked(nn::Module& model, nn::Optimizer& optimizer, const Dataset& data,
                              const Ledger& ledger, Ranks& ranks, const TrainOptions& options,
                              const TrainLoss& loss, const OnStep& on_step) {
  BatchLoader loader(data, memory::device_of(optimizer));
  const EngineOptions engine_options = options_of_engine(model, options, loader);
  const bool saved = broadcast(ranks, "train: checkpoint", [&] {
    return !options.save.empty() && std::filesystem::exists(options.save);
  });
  check(!saved || ledger.resumed(), "train: {} is there, and the ledger is not resumed from it",
        options.save);
  Engine engine(model, optimizer, data, ledger, engine_options);
  const auto save = [&] {
    if (!options.save.empty()) save_checkpoint(options.save, model, optimizer, engine);
  };
  if (saved) load_checkpoint(options.save, model, optimizer, engine);
  for (const std::string& change : engine.changes())
    tell(options, engine, "resumed, but " + change);
  save();  // a failure to save shows before the first release
  const auto begins = [&] { return engine.steps_made() == 0 && engine.means_released() == 0; };
  if (options.standardize && broadcast(ranks, "train: standardize", begins)) {
    standardize(engine, data, *options.standardize);
    save();
  }
  const std::int64_t first = engine.steps_made();
  const Engine::Loss of_rows = [&](Tape& tape, std::span<const std::int64_t> rows) {
    return loss_of(model, loss, tape, loader.batch(rows));
  };
  const auto stepped = [&](const StepReport& report) {
    const bool goes_on =
        broadcast(ranks, "train: on_step", [&] { return !on_step || on_step(report, engine); });
    if (goes_on && report.step % options.save_every == 0) save();
    return goes_on;
  };
  const bool to_the_end = make_steps(engine, of_rows, stepped);
  save();
  if (to_the_end) tell_end(options, engine, saved && engine.steps_made() == first);
  return statement_from_json(
      broadcast(ranks, "train: statement", [&] { return to_json(engine.report()); }));
}

void check_options(const TrainOptions& options) {
  check(options.engine.steps >= 1 && options.save_every >= 1,
        "train: {} steps, with a checkpoint every {}", options.engine.steps, options.save_every);
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

}  // namespace sotto
