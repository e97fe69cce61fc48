// The names that fragments of code in the pages take for granted (docs_snippets.py). Fragments are
// compiled and not run, so nothing here is defined.
#pragma once

#include <cstdio>
#include <filesystem>

#include <sotto/sotto.h>

#include <sotto/autograd/custom_op.h>
#include <sotto/core/distributed.h>
#include <sotto/core/memory.h>
#include <sotto/dp/accounting.h>
#include <sotto/dp/auditing.h>
#include <sotto/memory/accumulation.h>
#include <sotto/memory/captured_loss.h>
#include <sotto/memory/profiling/timeline.h>
#include <sotto/nn/check/check_layer.h>
#include <sotto/nn/models.h>
#include <sotto/nn/optim/rank_sink.h>
#include <sotto/nn/optim/update_sink.h>

namespace given {

extern sotto::nn::Sequential model;
extern sotto::nn::Sgd optimizer;
extern sotto::Ledger ledger;
extern sotto::Engine engine;
extern sotto::EngineOptions options;
extern sotto::Engine::Loss loss;
extern sotto::Dataset data;
extern std::int64_t population;
extern std::vector<std::int64_t> rows;

}  // namespace given
