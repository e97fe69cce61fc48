// Checks of the settings of private training, before a run starts.
#pragma once

#include <string>
#include <vector>

#include "dp/engine/engine_options.h"
#include "dp/sampling/make_sampler.h"
#include "nn/optim/optimizer.h"

namespace sotto {

// Returns one sentence per problem, with the values; empty if there is none. `header` is that of
// the ledger.
std::vector<std::string> engine_problems(nn::Module& model, const nn::Optimizer& optimizer,
                                         std::int64_t population, const EngineOptions& options,
                                         const LedgerHeader& header = {});

// Returns options.groups or, if there are none, one group of all trained parameters.
std::vector<ClipGroup> clip_groups(nn::Module& model, const EngineOptions& options);

// Returns the reason why max_batch_size of a truncated Poisson sampler, whose event is `batch`,
// costs too much of delta (dp/accounting/truncation.h); empty if it does not, and for other
// samplings. The options must have no other problem.
std::string truncation_problem(std::int64_t population, const Event& batch,
                               const EngineOptions& options, NeighboringRelation relation);

// Returns the options of the sampler, for make_sampler().
SamplerOptions sampler_options(const EngineOptions& options);

}  // namespace sotto
