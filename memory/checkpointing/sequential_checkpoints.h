// Activation checkpointing of a Sequential by one setting: every n-th value kept, or what a budget
// of bytes asks for. What is not kept is run again in backward (autograd/segment.h), and gradients
// stay what they are. Of any other module, nn::Module::set_recomputing() does the same for itself.
#pragma once

#include <optional>

#include "memory/checkpointing/chain_plan.h"
#include "nn/module.h"

namespace sotto::memory {

// Keeps the input of every n-th module and runs the n modules behind it together again. For two
// backwards all of this is run again once more: only so the first of them, too, releases what it
// has passed. Throws std::invalid_argument unless n >= 1.
void checkpoint_every(nn::Sequential& model, int n, BackwardPasses backwards = BackwardPasses::one);

// How a chain is run.
struct ChainRun {
  bool private_data = false;            // with the norms of samples
  int sample_axis = 0;                  // of the input
  std::optional<Dtype> precision = {};  // in force; nothing: as the input and the modules are
};

// What the modules cost on an input like this one, from a dry run of each, forward and backward,
// into gradients. Bytes are those of the input's device; the work is counted, not timed: products
// by their operations and the rest by the bytes that are kept, at the backend's constants.
Chain measured_chain(nn::Sequential& model, const Tensor& input, const ChainRun& how = {});

// The segments of a plan for a Sequential.
std::vector<nn::Sequential::Segment> segments_of(const ChainPlan& plan);

// Sets the segments that run the least again while forward and backward, with `private_data` the
// two of ghost clipping, take no more than `budget` bytes beyond what is in use before them, and
// says what they come to. Throws as plan_chain().
ChainPlan checkpoint_auto(nn::Sequential& model, const Tensor& input, std::size_t budget,
                          bool private_data = false);

}  // namespace sotto::memory
