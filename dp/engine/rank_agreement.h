// What all ranks of a distributed run must have in common, compared when the engine is made.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/ranks/ranks.h"
#include "dp/engine/engine_options.h"
#include "dp/ledger/ledger.h"
#include "nn/module.h"
#include "nn/optim/optimizer.h"

namespace sotto::inline dp {

// A name for people, and a value as text.
using Fact = std::pair<std::string, std::string>;

// The options, parameters with hashes of their values, and the optimizer's rules.
std::vector<Fact> facts_of_run(nn::Module& model, const nn::Optimizer& optimizer,
                               std::int64_t population, const EngineOptions& options,
                               const Ledger& ledger);

// Problems of several ranks alone: what is not supported, and a ledger of another run.
std::vector<std::string> rank_problems(const EngineOptions& options, const Ledger& ledger);

// Throws the same std::invalid_argument on every rank, naming rank and fact, if facts differ or a
// rank has problems. Collective.
void check_agreement(Ranks& ranks, const std::vector<Fact>& facts,
                     const std::vector<std::string>& problems);

}  // namespace sotto::inline dp
