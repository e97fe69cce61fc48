// The members of EngineOptions, each once: from this list come what ranks compare and what a
// checkpoint knows of the run (dp/engine/run_facts.h). Tests hold validation and the page of
// options to it, and count the members.
#pragma once

#include "dp/engine/engine_options.h"

namespace sotto {

// How an option that must be equal on all ranks is marked, and one that is each rank's own.
struct EqualOnRanks {};
struct OwnOfRank {};

// Calls visit(name, member, mark) for each option, in the order of their declaration.
template <class Options, class Visitor>
void visit_options(Options& options, const Visitor& visit) {
  constexpr EqualOnRanks equal;
  constexpr OwnOfRank own;
  visit("noise_multiplier", options.noise_multiplier, equal);
  visit("target_epsilon", options.target_epsilon, equal);
  visit("delta", options.delta, equal);
  visit("allow_large_delta", options.allow_large_delta, equal);
  visit("steps", options.steps, equal);
  visit("planned_means", options.planned_means, equal);
  visit("accountant", options.accountant, equal);
  visit("sampling", options.sampling, equal);
  visit("logical_batch", options.logical_batch, equal);
  visit("max_batch_size", options.max_batch_size, equal);
  visit("groups_in_cycle", options.groups_in_cycle, equal);
  visit("memory", options.memory, equal);
  visit("unit", options.unit, equal);
  visit("rows_of_unit", options.rows_of_unit, equal);
  visit("mean_of_rows", options.mean_of_rows, equal);
  visit("bucket_of_unit", options.bucket_of_unit, equal);
  visit("prefetch_rows", options.prefetch_rows, own);  // it changes no result
  visit("clip_bound", options.clip_bound, equal);
  visit("groups", options.groups, equal);
  visit("clipping", options.clipping, equal);
  visit("passes", options.passes, equal);
  visit("adaptive_clipping", options.adaptive_clipping, equal);
  visit("bound_schedule", options.bound_schedule, equal);
  visit("noise_schedule", options.noise_schedule, equal);
  visit("noise", options.noise, equal);
  visit("noise_strategy", options.noise_strategy, equal);
  visit("loss_scaling", options.loss_scaling, equal);
  visit("seed", options.seed, equal);
  visit("ranks", options.ranks, own);
  visit("owner_of_unit", options.owner_of_unit, equal);
}

}  // namespace sotto
