// Checkpoints of private training: one safetensors file with the model, its moving average, the
// optimizer's state, where the engine stands, and a mark of the ledger. Written atomically; no
// generator is part of it.
#pragma once

#include <string>

#include "sotto/dp/engine.h"
#include "sotto/nn/moving_average.h"

namespace sotto {

// Everything but the engine's ledger, which is a file of its own. The file is as SECRET as the
// batches to come and correlated noise, unless sampling is without passes and noise without
// correlation: then it holds only what was released. Throws SystemFailure when the file cannot be
// written, and std::invalid_argument for a ledger in memory.
void save_checkpoint(const std::string& path, nn::Module& model, const nn::Optimizer& optimizer,
                     const Engine& engine, const nn::MovingAverage* average = nullptr);
// The same; throws std::invalid_argument also when the ledger is another than the engine's.
void save_checkpoint(const std::string& path, nn::Module& model, const nn::Optimizer& optimizer,
                     const Engine& engine, const Ledger& ledger,
                     const nn::MovingAverage* average = nullptr);

// For Ledger::resume(), before the engine is made. Throws SystemFailure when the file cannot be
// read, and std::invalid_argument when it is no checkpoint.
LedgerMark checkpoint_mark(const std::string& path);

// Gives model, optimizer and engine the values they had; the ledger must have been resumed with the
// mark. Throws as above, and std::invalid_argument, naming the entry, when something does not fit
// the model, the optimizer, the engine or the average; also for an average where the file has none,
// and for none where it has one.
void load_checkpoint(const std::string& path, nn::Module& model, nn::Optimizer& optimizer,
                     Engine& engine, nn::MovingAverage* average = nullptr);

}  // namespace sotto
