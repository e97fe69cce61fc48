#include "dp/clipping/physical_clipping.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "autograd/tape.h"
#include "dp/clipping/gpu_group_clipper.h"
#include "dp/clipping/host_group_clipper.h"
#include "dp/clipping/one_pass_sink.h"
#include "dp/clipping/unit_sink.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

// By group: whether weights of samples for these parameters, or for all if there are none, apply.
std::vector<char> weighted_groups(const std::vector<ClipGroup>& groups,
                                  const std::vector<const Parameter*>& parameters) {
  std::vector<std::ptrdiff_t> found(groups.size());
  for (const Parameter* parameter : parameters) ++found[group_of(groups, *parameter)];
  std::vector<char> weighted;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const std::ptrdiff_t size = std::ssize(groups[group].parameters);
    check(found[group] == 0 || found[group] == size,
          "Clipper: weights of samples for {} of the {} parameters of group {}", found[group], size,
          group);
    weighted.push_back(parameters.empty() || found[group] > 0);
  }
  return weighted;
}

void one_pass(Tape& tape, const Var& loss, const Grouping* grouping, const ClipBatch& batch,
              const ClipTargets& to) {
  HostGroupClipper host(batch, to.accumulator);
  OnePassSink sink(batch, grouping, host);
  tape.backward(loss, sink, batch.loss_scale);
  sink.finish();
}

void one_pass_on_gpu(Tape& tape, const Var& loss, const Tensor& losses, const Grouping* grouping,
                     const ClipBatch& batch, const ClipTargets& to) {
  GpuGroupClipper gpu(batch, losses, grouping, to.accumulator);
  OnePassSink sink(batch, grouping, gpu);
  ReplaySink replay(batch, losses, grouping, to.graphs, sink);
  tape.backward(loss, replay, batch.loss_scale);
  const ReplaySink::Outcome outcome = replay.replay(to.accumulator);
  if (outcome == ReplaySink::Outcome::added) return;
  // Each unit is a term of its own, as in the replay, even if the host clips.
  ClipBatch single_units = batch;
  single_units.ends = {};
  HostGroupClipper host(single_units, to.accumulator);
  if (outcome == ReplaySink::Outcome::not_reliable) sink.clip_with(host);
  replay.hand_on();
  sink.finish();
}

// Runs backward twice: the first pass computes norms and clip factors, the second the sums.
void backward_twice(Tape& tape, const Var& loss, const Grouping* grouping, const ClipBatch& batch,
                    GroupClipper& clipper, Tape::Keep keep) {
  UnitSink norms(grouping, batch.units, [&](const Parameter& parameter, const auto& uses) {
    clipper.norms(group_of(batch.groups, parameter), parameter, uses);
  });
  tape.backward(loss, norms, batch.loss_scale, Tape::Keep::graph);
  for (std::size_t group = 0; group < batch.groups.size(); ++group) clipper.factors(group);
  UnitSink sums(grouping, batch.units, [&](Parameter& parameter, const auto& uses) {
    clipper.sums(group_of(batch.groups, parameter), parameter, uses);
  });
  tape.backward(loss, sums, batch.loss_scale, keep);
}

void two_passes(Tape& tape, const Var& loss, const Grouping* grouping, const ClipBatch& batch,
                const ClipTargets& to) {
  HostGroupClipper host(batch, to.accumulator);
  backward_twice(tape, loss, grouping, batch, host, Tape::Keep::nothing);
}

// Returns false if the host has to clip; the tape is then still complete.
bool two_passes_on_gpu(Tape& tape, const Var& loss, const Tensor& losses, const Grouping* grouping,
                       const ClipBatch& batch, const ClipTargets& to) {
  to.graphs.failure_reason = "two passes";
  GpuGroupClipper gpu(batch, losses, grouping, to.accumulator);
  backward_twice(tape, loss, grouping, batch, gpu, Tape::Keep::graph);
  if (!gpu.finish_all()) return false;
  tape.clear();
  return true;
}

}  // namespace

// The weights that the loss gave to its tape's samples, by units of one row each. A weight of NaN
// is 0: such a unit is left out.
UnitWeights unit_weights(const std::vector<ClipGroup>& groups, const Tape& tape, std::int64_t units,
                         const Grouping* grouping) {
  const auto& [tensor, parameters] = tape.sample_weights();
  if (!tensor.defined()) return {};
  UnitWeights weights{std::vector<double>(static_cast<std::size_t>(units)),
                      weighted_groups(groups, parameters)};
  std::vector<char> seen(weights.values.size());
  const std::vector<double> rows = to_dtype(tensor, Dtype::f64).to_vector<double>();
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const std::int64_t unit =
        grouping ? grouping->unit_of_row[row] : static_cast<std::int64_t>(row);
    if (unit < 0) continue;
    const auto place = static_cast<std::size_t>(unit);
    check(!std::exchange(seen[place], true),
          "Clipper: weights of samples, but units of several rows");
    const double value = std::isnan(rows[row]) ? 0 : rows[row];
    check(value >= 0 && value <= 1, "Clipper: a sample's weight is not in [0, 1]");
    weights.values[place] = value;
  }
  return weights;
}

void clip_physical_batch(Tape& tape, const Var& loss, const Tensor& losses,
                         const Grouping* grouping, const ClipBatch& batch, const ClipTargets& to) {
  const bool on_gpu =
      batch.units > 0 && batch.weights.values.empty() && all_on_gpu(batch.groups, losses);
  if (!on_gpu)
    to.accumulator.add_losses(to_dtype(losses, Dtype::f64).to_vector<double>(), grouping);
  to.graphs.failure_reason = "no captured loss";
  if (batch.passes == ClipPasses::one) {
    if (on_gpu) {
      one_pass_on_gpu(tape, loss, losses, grouping, batch, to);
    } else {
      one_pass(tape, loss, grouping, batch, to);
    }
  } else if (!on_gpu || !two_passes_on_gpu(tape, loss, losses, grouping, batch, to)) {
    two_passes(tape, loss, grouping, batch, to);
  }
}

}  // namespace sotto
