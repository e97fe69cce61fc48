// Activation checkpointing of a Sequential by one setting: every n-th value is kept, or as many as
// a budget of bytes allows. Backward recomputes the rest (autograd/segment.h); gradients do not
// change. For any other module, use nn::Module::set_recomputing().
#pragma once

#include <optional>

#include "memory/checkpointing/chain_plan.h"
#include "nn/module.h"

namespace sotto::memory {

// Keeps the input of every n-th module; backward recomputes the n modules from there together. For
// two backward passes, an outer segment recomputes the whole list again, so that the first pass can
// free the values it has used. Throws std::invalid_argument unless n >= 1.
void checkpoint_every(nn::Sequential& model, int n, BackwardPasses backwards = BackwardPasses::one);

// The settings under which a chain is run.
struct ChainRun {
  bool private_data = false;            // per-sample norms are computed
  int sample_axis = 0;                  // of the input
  std::optional<Dtype> precision = {};  // of the calls; nullopt: that of the input and the modules
};

// Measures each module's costs on an input like this one by a dry run, forward and backward, into
// gradients. Bytes are those of the input's device. Work is counted, not timed: products by their
// operations and the rest by the bytes kept, with the backend's cost constants.
Chain measured_chain(nn::Sequential& model, const Tensor& input, const ChainRun& how = {});

// The segments to set for a plan.
std::vector<nn::Sequential::Segment> segments_of(const ChainPlan& plan);

// Chooses and sets the segments with the least recomputation such that forward and backward (with
// `private_data` the two passes of ghost clipping) take at most `budget` bytes beyond those in use
// before, and returns their plan. Throws the errors of plan_chain().
ChainPlan checkpoint_auto(nn::Sequential& model, const Tensor& input, std::size_t budget,
                          bool private_data = false);

}  // namespace sotto::memory
