// Clips one physical batch: in one pass or two, on the host or a GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "dp/clipping/clip_accumulator.h"
#include "dp/clipping/group_clipper.h"
#include "dp/clipping/replay_sink.h"

namespace sotto {

// The weights that the loss gave to its tape's samples, by units of one row each. A weight of NaN
// is 0: such a unit is left out.
UnitWeights unit_weights(const std::vector<ClipGroup>& groups, const Tape& tape, std::int64_t units,
                         const Grouping* grouping);

// The objects that clipping a physical batch changes.
struct ClipTargets {
  ClipAccumulator& accumulator;
  ClipGraphs& graphs;
};

// Runs backward from the loss and adds the batch's losses [n] and clipped sums to the accumulator.
// The tape is empty afterwards.
void clip_physical_batch(Tape& tape, const Var& loss, const Tensor& losses,
                         const Grouping* grouping, const ClipBatch& batch, const ClipTargets& to);

}  // namespace sotto
