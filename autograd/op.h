// An operation's name and properties, which all its uses share.
#pragma once

#include <span>

namespace sotto {

// The description of an operation. Make one global Op for each operation that you write, and pass
// it to Tape::record(). Its constructor registers the name, so that tests can require a check of
// each registered operation.
//
//   const Op cube_op("cube");
struct Op {
  // yes: backward also accepts a gradient (cotangent) with a leading sample axis (a batching rule,
  // as in vmap), and the per-sample gradients of a shared value are pulled back in one call, in
  // which Adjoint::batch_dims() is 1. no: they are pulled back in one call per sample.
  enum class Batchable { no, yes };
  // changes_sample_count: the result has another number of rows per sample than the inputs
  // (join_views: several instead of one; split_views: one instead of several).
  enum class SampleCount { kept, changes_sample_count };

  // Registers the name. Ops live as long as the program.
  explicit Op(const char* name, Batchable batchable = Batchable::no,
              SampleCount rows = SampleCount::kept);  // as given
  const char* name;                                   // shown in errors and memory labels
  Batchable batchable;                                // as given
  SampleCount rows;                                   // as given
};

// Returns the names of all Ops made so far.
std::span<const char* const> registered_ops();

}  // namespace sotto
