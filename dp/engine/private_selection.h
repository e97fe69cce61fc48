// Honest search among settings: the best of a random number of private trainings is released, and
// its epsilon holds for the whole search, which a sweep's does not (Liu and Talwar 2019; Papernot
// and Steinke 2022). The proof is in docs/appendix/proofs-accounting.md, section 8.
#pragma once

#include <cstdint>
#include <functional>

#include "core/io/safetensors.h"
#include "dp/accounting/selection_cost.h"
#include "dp/engine/engine_options.h"
#include "dp/ledger/ledger.h"

namespace sotto {
class SecretRandom;
}  // namespace sotto

namespace sotto {

// The result of one run, which leaves only if it is the best.
struct Candidate {
  TensorFile released = {};  // what leaves: weights, and what they were trained with
  // Larger is better, NaN is the worst: also that of a training that fails, because its weights
  // became infinite or its settings are out of range. It must be a function of what the run
  // released, and of public data: a score on private rows has to be released by the run itself
  // (EngineOptions::planned_means).
  double score = 0;
};

// The best of the runs.
struct Selected {
  std::int64_t setting = 0;  // its index
  Candidate candidate = {};  // its result
};

// The most that an engine with these options releases, as it would write it into its ledger's plan.
// Throws std::invalid_argument where Engine does for the options' numbers.
EventCounts planned_releases(std::int64_t population, const EngineOptions& options,
                             NeighboringRelation relation);

// The noise multiplier with which an engine with these options begins on this ledger. Throws
// std::invalid_argument where Engine does, such as for a target epsilon that is spent.
double first_noise_multiplier(std::int64_t population, const EngineOptions& options,
                              const Ledger& ledger);

// The options for the runs of a selection, in a ledger of this relation, whose epsilon as a whole
// is at most options.target_epsilon, with a noise multiplier in its place. Throws
// std::invalid_argument without a target, and when none up to 1e6 meets it.
EngineOptions options_of_run(std::int64_t population, EngineOptions options,
                             const TruncatedNegativeBinomial& runs, NeighboringRelation relation);

// Trains candidates, and returns the best. First the selection is written into the ledger, of which
// it must be the first release, and stays charged whatever happens. Then a number of runs is drawn
// from selection.runs, and for each a setting of 0, ..., settings - 1, uniformly and independently,
// so that some may never run and others twice. candidate(setting, run) trains an Engine on the
// ledger `run`, which is its own, lies in memory, and refuses plans and releases beyond
// selection.run. Nothing but the best candidate may leave: no other score, model or progress, nor
// the number of runs (their time tells it; do not measure it). Of equal scores the first wins. A
// candidate that throws std::invalid_argument is worse than all others.
//
// Throws std::invalid_argument, before any run, where Ledger::select() does and unless settings >=
// 1; after a run, if its ledger is of another population than the selection's; the first error of
// the candidates if all have thrown std::invalid_argument, and another exception that one throws.
// Then nothing is returned, and no search may follow in this ledger.
//
//   const NeighboringRelation relation = ledger.header().relation;
//   const EngineOptions one =
//       options_of_run(n, {.target_epsilon = 3, .steps = 500}, runs, relation);
//   const Selected best = select_privately(
//       ledger, 8, {runs, planned_releases(n, one, relation)}, [&](auto setting, auto& run) {
//         return train_and_score(rates[setting], run, one);  // makes an Engine on `run`
//       });
Selected select_privately(
    Ledger& ledger, std::int64_t settings, const PrivateSelection& selection,
    const std::function<Candidate(std::int64_t setting, const Ledger& run)>& candidate);
// The same with a generator of the caller's; with a seeded one the ledger is marked as not private.
Selected select_privately(
    Ledger& ledger, std::int64_t settings, const PrivateSelection& selection,
    const std::function<Candidate(std::int64_t setting, const Ledger& run)>& candidate,
    SecretRandom random);

}  // namespace sotto
