// Everything that is wrong with the settings of private training, before anything runs.
#pragma once

#include <string>
#include <vector>

#include "dp/engine/engine_options.h"
#include "dp/sampling/make_sampler.h"
#include "nn/optim/optimizer.h"

namespace sotto {

// One sentence for each problem, with the values; empty where there is none. `header` is that of
// the ledger.
std::vector<std::string> engine_problems(nn::Module& model, const nn::Optimizer& optimizer,
                                         std::int64_t population, const EngineOptions& options,
                                         const LedgerHeader& header = {});

// The groups that the options ask for: their own, or one of all trained parameters.
std::vector<ClipGroup> clip_groups(nn::Module& model, const EngineOptions& options);

// Returns why the bound of truncated Poisson batches, a sampler's event, costs too much of delta
// (dp/accounting/truncation.h); empty where it does not, and for other samplings. The options must
// have no other problems.
std::string truncation_problem(std::int64_t population, const Event& batch,
                               const EngineOptions& options, NeighboringRelation relation);

// As make_sampler() takes them.
SamplerOptions sampler_options(const EngineOptions& options);

}  // namespace sotto
