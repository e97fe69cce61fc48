// Activation checkpoints of whole models: which modules can be checkpointed, and which checkpoints
// keep a limit while the model runs as its training runs it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "memory/checkpointing/sequential_checkpoints.h"
#include "memory/planning/planner.h"
#include "memory/planning/policy.h"

namespace sotto::memory {

// The outermost Sequentials with two or more modules, the model itself included.
std::vector<nn::Sequential*> block_lists(nn::Module& model);
// Returns whether any part of the model is recomputed in backward.
bool has_checkpoints(nn::Module& model);

// With n >= 1, every n-th module of the model's block_lists() keeps its input, and backward
// recomputes the n modules from there together (checkpoint_every); n = 0 removes all checkpoints.
// Earlier settings are overwritten. Throws std::invalid_argument for n < 0, and for n >= 1 if the
// model has no such list: choose the modules to recompute by Module::set_recomputing() or
// segment().
void set_checkpoints(nn::Module& model, int n, BackwardPasses backwards = BackwardPasses::one);

// Sets those settings of a policy that belong to a model: activation checkpoints, and the precision
// of its calls (Module::set_precision). Unset ones do not change. Throws the errors of
// set_checkpoints() and set_precision(), and std::invalid_argument for settings of a step: physical
// batch, accumulation, limit.
void apply(const Policy& policy, nn::Module& model);

// The way in which training runs a list's blocks.
struct CheckpointRun {
  bool private_data = false;                       // per-sample norms are computed
  BackwardPasses backwards = BackwardPasses::one;  // passes over the recorded graph
};

// Chosen checkpoints: the segments of one Sequential.
struct CheckpointChoice {
  nn::Sequential* list = nullptr;                 // not owned
  std::vector<nn::Sequential::Segment> segments;  // as set_segments() takes them
  double recomputation = 0;                       // in forward passes of the list
  std::string text() const;                       // "recomputes modules 0 .. 4, 6 .. 9 of 12"
};

// Chooses activation checkpoints for the Sequential that stores most: the plan with the least
// recomputation that fits requirement.useful() rows within the limit, else the plan with the
// smallest peak, and sets them. plan_chain() gets the bytes that dry runs of the whole model leave
// for the list. Returns nullopt if the model runs no Sequential, or not even the minimum batch can
// run.
std::optional<CheckpointChoice> choose_checkpoints(nn::Module& model,
                                                   const MemoryRequirement& requirement,
                                                   const CheckpointRun& how = {});

// Returns whether a policy leaves the checkpoints open: neither it nor the model sets any, and the
// model has block_lists().
bool can_checkpoint(const Policy& policy, nn::Module& model);
// The given strategy plus the segments of choose_checkpoints(), which are chosen when it is first
// applied.
Strategy with_checkpoints(const Strategy& strategy, nn::Module& model,
                          const MemoryRequirement& requirement, const CheckpointRun& how = {});

}  // namespace sotto::memory
