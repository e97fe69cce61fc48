// Agreement of the ranks of a distributed run: what they must have in common is compared when the
// engine is made.
#pragma once

#include <string>
#include <vector>

#include "dp/engine/engine_options.h"
#include "dp/ledger/ledger.h"
#include "nn/data/dataset.h"
#include "nn/module.h"
#include "nn/optim/optimizer.h"

namespace sotto {

// What an engine is made from. A null `data` is not compared, nor is one of which each rank has its
// own units (EngineOptions::owner_of_unit).
struct RunParts {
  nn::Module& model;
  const nn::Optimizer& optimizer;
  std::int64_t population;
  const Dataset* data;
  const EngineOptions& options;  // with their ranks
  const Ledger& ledger;
};

// Throws the same std::invalid_argument on every rank, naming rank and value, if options, ledgers,
// data sets, parameters, their values or the optimizer's rules differ, if the ranks cannot do what
// the options say, or if a rank has problems. Collective.
void check_agreement(const RunParts& run, std::vector<std::string> problems);

}  // namespace sotto
