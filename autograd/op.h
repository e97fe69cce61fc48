// The name of an operation and what holds for all its uses.
#pragma once

#include <span>

namespace sotto {

// Making an Op registers its name, and only registered operations can be recorded, so that tests
// can ask for a check of each.
struct Op {
  // Whether backward also accepts a cotangent with a leading sample axis (a batching rule, as in
  // vmap). Then per-sample cotangents of a shared value are pulled back in one call; otherwise one
  // call per sample. Adjoint::batch_dims() is 1 in the first case.
  enum class Batchable { no, yes };
  // Whether the op changes how many rows each sample has (join_views: one to many; split_views:
  // back to one).
  enum class SampleCount { kept, changes_sample_count };

  explicit Op(const char* name, Batchable batchable = Batchable::no,
              SampleCount rows = SampleCount::kept);
  const char* name;
  Batchable batchable;
  SampleCount rows;
};

std::span<const char* const> registered_ops();

}  // namespace sotto
