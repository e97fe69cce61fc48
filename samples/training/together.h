// The agreement of a program's processes before they train together, and while they do. Every
// function is collective; with one rank each does its work alone.
#pragma once

#include <array>
#include <functional>
#include <string>

#include "core/ranks/ranks.h"
#include "samples/training/checkpoint.h"
#include "samples/training/task.h"

namespace sotto::samples {

// Throws std::invalid_argument on every rank unless all pass the same text about `what`; the
// message has the texts if they are to be shown.
enum class Shown { yes, no };
void check_equal(Ranks& ranks, const std::string& what, const std::string& text,
                 Shown shown = Shown::yes);
// Rank 0's checkpoint, which it loads, on every rank; the engine's secrets stay on rank 0.
Checkpoint broadcast_checkpoint(Ranks& ranks, const std::function<Checkpoint()>& load);
// Hashes of all samples and units: of the training data, with other data that the task has read,
// and of the test data.
std::array<std::string, 2> fingerprints(const Data& data);

}  // namespace sotto::samples
