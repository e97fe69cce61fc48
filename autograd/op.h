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
  // The tensors that the op reads besides its inputs. per_sample: some have a row for each sample,
  // as targets and lengths do; a private tape then refuses a result that all samples share. shared:
  // none, or only such as are equal for all samples. An op that does not say is per_sample.
  enum class Captures { per_sample, shared };

  // Registers the name. Ops live as long as the program.
  explicit Op(const char* name, Batchable batchable = Batchable::no,
              SampleCount rows = SampleCount::kept)  // as given
      : Op(name, Captures::per_sample, batchable, rows) {}
  // The same for an op that says what it captures.
  Op(const char* name, Captures captures, Batchable batchable = Batchable::no,
     SampleCount rows = SampleCount::kept);
  const char* name;     // shown in errors and memory labels
  Captures captures;    // as given
  Batchable batchable;  // as given
  SampleCount rows;     // as given
};

// Returns the names of all Ops made so far.
std::span<const char* const> registered_ops();

}  // namespace sotto
