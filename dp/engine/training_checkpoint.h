// Two files of private training, both safetensors and written atomically. A training checkpoint is
// what training goes on from: the model, its moving average, the optimizer's state, the engine's
// state, and the ledger's position; no generator is part of it. It is SECRET. A model is what may
// be published: weights alone, and their privacy statement.
#pragma once

#include <string>

#include "dp/engine/engine.h"
#include "nn/optim/moving_average.h"

namespace sotto {

// Everything but the engine's ledger, which is a file of its own. The file holds the batches of
// passes, also those to come, and correlated noise, also that of the past: who reads it can take
// the noise off. It is marked as secret (secret_key, which Engine::state() sets), and nobody but
// its owner may read it. Throws SystemFailure when the file cannot be written, and
// std::invalid_argument for a ledger in memory.
void save_checkpoint(const std::string& path, nn::Module& model, const nn::Optimizer& optimizer,
                     const Engine& engine, const nn::MovingAverage* average = nullptr);
// The same; throws std::invalid_argument also when the ledger is another than the engine's.
void save_checkpoint(const std::string& path, nn::Module& model, const nn::Optimizer& optimizer,
                     const Engine& engine, const Ledger& ledger,
                     const nn::MovingAverage* average = nullptr);

// The weights by the names that nn::load_module() reads, the statement (Engine::report()) as JSON
// in the metadata under statement_key. Throws SystemFailure when the file cannot be written.
inline constexpr const char* statement_key = "sotto.privacy";
void save_model(const std::string& path, nn::Module& model, const PrivacyStatement& statement);

// For Ledger::resume(), before the engine is made. Throws SystemFailure when the file cannot be
// read, and std::invalid_argument when it is no checkpoint.
LedgerPosition checkpoint_mark(const std::string& path);

// Gives model, optimizer and engine the values they had; the ledger must have been resumed with the
// mark. Throws as above, and std::invalid_argument, naming the entry, when something does not fit
// the model, the optimizer, the engine or the average; also for an average where the file has none,
// and for none where it has one. Returns whether the file had a checksum (core/io/safetensors.h),
// which then held: without one, damage to it may not be seen.
bool load_checkpoint(const std::string& path, nn::Module& model, nn::Optimizer& optimizer,
                     Engine& engine, nn::MovingAverage* average = nullptr);

}  // namespace sotto
