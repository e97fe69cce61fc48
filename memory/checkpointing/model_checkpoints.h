// Checkpoints of whole models: where segments can lie in one, and which of them keep a limit while
// the model runs as its training runs it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "memory/checkpointing/sequential_checkpoints.h"
#include "memory/planning/planner.h"
#include "memory/planning/policy.h"

namespace sotto::memory {

// The outermost Sequentials of several modules in a model, itself among them.
std::vector<nn::Sequential*> block_lists(nn::Module& model);
// Whether any part of the model is run again in backward.
bool has_checkpoints(nn::Module& model);

// With n >= 1 every n-th module of the model's block_lists() keeps its input, and the n modules
// behind it are run again together (checkpoint_every); with 0 nothing is run again. Settings that
// the model had are gone. Throws std::invalid_argument for n < 0, and for n >= 1 where a model has
// no such list: what it could run again is for its author to say (Module::set_recomputing,
// segment()).
void set_checkpoints(nn::Module& model, int n, BackwardPasses backwards = BackwardPasses::one);

// The settings of a policy that belong to a model: its checkpoints, and the precision of its calls
// (Module::set_precision); what is not set stays. Throws std::invalid_argument as
// set_checkpoints() and set_precision() do, and for the settings that are a step's: physical batch,
// accumulation, limit.
void apply(const Policy& policy, nn::Module& model);

// How a list's blocks are run.
struct CheckpointRun {
  bool private_data = false;  // norms of samples are taken
  BackwardPasses backwards = BackwardPasses::one;
};

// Segments of one Sequential.
struct Cut {
  nn::Sequential* list = nullptr;
  std::vector<nn::Sequential::Segment> segments;
  double recomputation = 0;  // in forward passes of the list
  std::string text() const;  // "runs 0 .. 4 and 6 .. 9 of 12 modules again"
};

// Sets the segments, in the list that keeps most, that run the least again while
// requirement.useful() rows keep the limit: plan_chain() for what dry runs show to be left for the
// list. Where no segments keep the limit, those that need least are set. Nothing where the model
// calls no list in a dry run, or not even the fewest rows can be run.
std::optional<Cut> choose_checkpoints(nn::Module& model, const MemoryRequirement& requirement,
                                      const CheckpointRun& how = {});

// Whether a policy leaves the model's checkpoints open: it sets none, and neither does the model,
// which has block_lists().
bool can_checkpoint(const Policy& policy, nn::Module& model);
// A way with the segments of choose_checkpoints() as well. They are sought when it is first
// entered.
Strategy with_checkpoints(const Strategy& strategy, nn::Module& model,
                          const MemoryRequirement& requirement, const CheckpointRun& how = {});

}  // namespace sotto::memory
