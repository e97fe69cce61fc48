// The two files of private training, both safetensors and written atomically. A training checkpoint
// allows training to continue: it holds the model, its moving average, the optimizer's, the
// engine's and a learner's states, and the ledger's position, but no generator of random numbers.
// It is SECRET. A model file may be published: it holds the weights and their privacy statement
// only.
//
// The programs, such as sotto-mnist, write the same file, with a section of their own in the
// metadata (program_key): load_checkpoint() reads a file of theirs, and they go on with one that
// lacks the section.
#pragma once

#include <optional>
#include <string>

#include "dp/engine/engine.h"
#include "dp/engine/learner.h"
#include "nn/optim/moving_average.h"

namespace sotto {

// On several ranks save_checkpoint() and load_checkpoint() are collective: rank 0 alone writes and
// reads the file, which is the same for every number of ranks, and an error is thrown on every
// rank, with nothing changed. save_model() and checkpoint_mark() are rank 0's.

// Saves everything but the engine's ledger, which is a file of its own. The file reveals batches of
// the current epoch, also future ones, and past correlated noise: its reader can subtract the
// noise. It is marked as secret (secret_key, set by Engine::state()), and readable by its owner
// only. Throws SystemFailure if the file cannot be written, and std::invalid_argument for a ledger
// in memory.
void save_checkpoint(const std::string& path, nn::Module& model, const nn::Optimizer& optimizer,
                     const Engine& engine, const nn::MovingAverage* average = nullptr,
                     const Learner* learner = nullptr);
// save_checkpoint() with a check: throws std::invalid_argument unless `ledger` is the engine's.
void save_checkpoint(const std::string& path, nn::Module& model, const nn::Optimizer& optimizer,
                     const Engine& engine, const Ledger& ledger,
                     const nn::MovingAverage* average = nullptr);

// Saves the weights, by the names that nn::load_module() reads, and the statement
// (Engine::report()) as JSON in the metadata under statement_key. Throws SystemFailure if the file
// cannot be written.
inline constexpr const char* statement_key = "sotto.privacy";
// Writes the file in one piece: a reader sees the old file or the new one.
void save_model(const std::string& path, nn::Module& model, const PrivacyStatement& statement);

// The key of a checkpoint's metadata under which the ledger's position is, in private training.
inline constexpr const char* mark_key = "sotto.ledger_mark";
// Returns the ledger's position in a checkpoint, for Ledger::resume() before the engine is made.
// Throws SystemFailure if the file cannot be read, and std::invalid_argument if it is no
// checkpoint.
LedgerPosition checkpoint_mark(const std::string& path);

// The key of a checkpoint's metadata under which the program that wrote it keeps what it must know
// to continue, such as its settings and the history of evaluations. Any text; train() ignores it.
inline constexpr const char* program_key = "sotto.program";
// Returns that text; nullopt if there is none. Throws SystemFailure if the file cannot be read.
std::optional<std::string> checkpoint_program(const std::string& path);

// Restores model, optimizer, engine, moving average and learner; the engine's ledger must have been
// resumed at checkpoint_mark(). Returns true if the file has a checksum (core/io/safetensors.h),
// which was verified; without one, damage may go unnoticed. Throws where checkpoint_mark() does,
// and std::invalid_argument, naming the entry, if an entry does not fit the model, optimizer,
// engine or average, if only one of the file and the caller has an average, and if only the file
// has a learner.
bool load_checkpoint(const std::string& path, nn::Module& model, nn::Optimizer& optimizer,
                     Engine& engine, nn::MovingAverage* average = nullptr,
                     Learner* learner = nullptr);

}  // namespace sotto
