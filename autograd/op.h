// An operation's name and properties, which all its uses share.
#pragma once

#include <span>

namespace sotto {

// The properties of an operation that the tape needs to record it.
struct OpProperties {
  // The tensors that the op reads besides its inputs. per_sample: some have a row for each sample,
  // as targets and lengths do; a private tape then refuses a result that all samples share. shared:
  // none, or only tensors that are equal for all samples.
  enum class Captures { per_sample, shared };
  // The type in which the op computes on a tape with a 16-bit precision, as in PyTorch's autocast.
  // lower: the tape's. f32: f32. promote: the widest type of its batched inputs; shared inputs are
  // converted to it.
  enum class Precision { lower, f32, promote };

  Captures captures = Captures::per_sample;  // of an op that names none
  Precision precision = Precision::promote;  // of an op that names none
  // Backward also accepts a gradient (cotangent) with a leading sample axis (a batching rule, as in
  // vmap): the per-sample gradients of a shared value are pulled back in one call, in which
  // Adjoint::batch_dims() is 1, instead of one call per sample.
  bool batchable = false;
  // The result has another number of rows per sample than the inputs, as of join_views and
  // split_views.
  bool changes_sample_count = false;
};

// The description of an operation. Make one global Op for each operation that you write, and pass
// it to Tape::record(). Its constructor registers the name, so that tests can require a check of
// each registered operation.
//
//   const Op cube_op("cube", {.captures = Op::Captures::shared});
struct Op : OpProperties {
  // Registers the name, which must live as long as the program.
  explicit Op(const char* name, const OpProperties& properties = {});
  const char* name;  // shown in errors and memory labels
};

// Returns the names of all Ops made so far.
std::span<const char* const> registered_ops();

}  // namespace sotto
