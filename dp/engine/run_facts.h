// The settings and data that decide a run's results, as names and values for people. Ranks compare
// them, and so does a run that continues from a checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dp/engine/engine_options.h"
#include "nn/data/dataset.h"
#include "nn/module.h"
#include "nn/optim/optimizer.h"

namespace sotto {

// A name for people, and a value as text.
using Fact = std::pair<std::string, std::string>;

// The options, and the clip groups of the model.
std::vector<Fact> option_facts(nn::Module& model, std::int64_t population,
                               const EngineOptions& options);
// The rules of the optimizer's groups, and their constants.
std::vector<Fact> optimizer_facts(const nn::Optimizer& optimizer);
// Hashes of the samples, if there is a data set, and of the rows of units. Those of which each rank
// has its own (EngineOptions::owner_of_unit) are not compared.
std::vector<Fact> data_facts(const Dataset* data, std::int64_t population,
                             const EngineOptions& options);
// False if a name that both have has two values.
bool same_data(const std::vector<Fact>& one, const std::vector<Fact>& other);
// "seed is 2 instead of 1": the facts of `now` that differ from those of `before`.
std::vector<std::string> differences(const std::vector<Fact>& now, const std::vector<Fact>& before);

std::string hash_text(std::span<const std::byte> bytes);

}  // namespace sotto
