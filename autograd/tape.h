// The tape: a list of recorded operations, and backward over it. Operations are recorded in
// topological order, so backward walks the list from its end.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "autograd/tape_options.h"
#include "autograd/var.h"

namespace sotto {

class GradSink;
class PerSampleGrad;
struct Op;
struct Parameter;
struct PhiloxKey;
namespace detail {
struct TapeNode;
}

// Records operations and computes their gradients by reverse-mode differentiation. Engine makes one
// for each physical batch; ordinary training makes its own:
//
//   Tape tape;
//   const Var y = model(tape.input(x));
//   SumSink sink;
//   tape.backward(cross_entropy(y, labels), sink);
class Tape {
 public:
  // Computes the gradients of an op's inputs from dy, that of its result, and passes them to the
  // adjoint.
  using Backward = std::function<void(const Tensor& dy, Adjoint& adjoint)>;
  // Returns the per-sample gradient of the op's only input, a shared value, in the form of the
  // result's per-sample gradient.
  using PullBack = std::function<PerSampleGrad(const PerSampleGrad& gradient)>;

  // Throws std::invalid_argument for a precision that is not a floating-point type, and for f64
  // with private_data.
  explicit Tape(const TapeOptions& options = {});
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // Returns a batched value with one slice per sample along `axis`. With `wants_grad` its gradient
  // is kept for grad(). Throws std::invalid_argument if its number of samples differs from that of
  // an earlier input.
  Var input(const Tensor& value, int axis = 0, bool wants_grad = false);
  // Returns a batched value with several rows (views) per sample along `axis`: row r belongs to
  // sample r mod n, as join_views() orders them. Per-sample gradients sum over all views of a
  // sample. split_views() separates the views.
  Var input_views(const Tensor& value, std::int64_t views, int axis = 0, bool wants_grad = false);
  // Returns a value that is equal for all samples and not trained. On a tape without private_data,
  // `samples` may be SampleAxis::mixed(), and grad() gives the gradient summed over the samples.
  Var constant(const Tensor& value, SampleAxis samples = SampleAxis::shared(),
               bool wants_grad = false);
  // Returns the value of a parameter. All uses of a parameter share one leaf of the tape.
  Var use(Parameter& parameter);

  // Records an op's result: its value, its sample axis, and the function that computes its inputs'
  // gradients. Without `pull_back` the per-sample gradients of a shared result are materialized.
  // Throws std::invalid_argument for inputs on another tape or recorded before the tape was
  // emptied, for a result whose number of rows does not fit the inputs, and on a private tape for a
  // mixed result and for a shared one of an op that may capture rows (Op::Captures).
  Var record(const Op& op, std::vector<Var> inputs, const Tensor& value, SampleAxis samples,
             Backward backward, PullBack pull_back = nullptr);
  // Call this in an op that combines samples. On a private tape it throws std::invalid_argument,
  // naming the op, the shape and a replacement (`advice`, or by default one for batch statistics).
  // Otherwise it returns SampleAxis::mixed().
  SampleAxis mix(const char* op, const Var& x, const char* advice = nullptr) const;
  // Call this in an op that takes a plain tensor with a row for each sample, named by `rows`,
  // beside a value with the sample axis `beside`. Unless that is batched, the rows would count as
  // equal for all samples, and a private tape throws std::invalid_argument.
  void check_plain_rows(const char* op, const char* rows, SampleAxis beside,
                        const char* advice = nullptr) const;

  // Weights [n] that the next backward that empties the tape applies to the clipped per-sample
  // gradients of `parameters` (empty: all). They are constants. Throws std::invalid_argument on a
  // tape that is not private, in a segment, for weights of another shape than [n], and if the tape
  // has some already.
  void set_sample_weights(const Var& weights, std::vector<const Parameter*> parameters = {});
  // The weights, and the parameters that they are for.
  struct SampleWeights {
    Tensor values;                             // [n]; undefined: none
    std::vector<const Parameter*> parameters;  // empty: all
  };
  // The weights of set_sample_weights(), or undefined values.
  const SampleWeights& sample_weights() const { return sample_weights_; }

  // The state of the tape after backward: emptied, or complete for another backward.
  enum class Keep { nothing, graph };
  // Delivers the gradients of seed * sum(loss) with respect to the parameters to the sink.
  // Afterwards the tape is empty, unless Keep::graph is given. Throws std::invalid_argument if, on
  // a private tape, the loss is not one number per sample, [n], or the sink does not bound
  // influence, and if, on a tape with a precision, the loss is not f32 or f64.
  void backward(const Var& loss, GradSink& sink, double seed = 1, Keep keep = Keep::nothing);
  // Empties the tape, as a backward() that keeps no graph does.
  void clear();
  // After backward, the gradient of an input made with wants_grad; zeros if none reached it.
  Tensor grad(const Var& input) const;

  // The number of samples; -1 before the first batched input.
  std::int64_t sample_count() const { return state_.sample_count; }
  // The number of rows per sample of a batched value: 1, or the number of views.
  std::int64_t views(const Var& x) const;
  const TapeOptions& options() const { return state_.options; }
  // The precision now in force (PrecisionRegion); nullopt if operations compute in their inputs'
  // type.
  std::optional<Dtype> precision() const { return state_.precision; }
  // Returns a new key of public randomness at each call.
  PhiloxKey next_key();
  // True for the tape of a training step, false for the inner tape of a checkpointed segment.
  bool is_root() const { return mode_ == Mode::record; }
  // True while a checkpointed segment is recomputed; call counters must not count again.
  bool is_recomputing() const { return mode_ == Mode::repeat; }

 private:
  friend class CastsTogether;
  friend class PrecisionRegion;
  friend Var cast(const Var& x, Dtype dtype);
  friend class Segment;
  // Another tape records with equal results from an equal state (recomputation).
  struct State {
    TapeOptions options;
    std::int64_t sample_count = -1;
    std::uint64_t draws = 0;  // keys of public randomness that were taken
    std::optional<Dtype> precision;
  };
  // record: for backward. values: computes values only, and nodes keep only their parameters.
  // repeat: records again, to recompute a checkpointed segment.
  enum class Mode { record, values, repeat };
  Tape(State state, Mode mode);

  Var append(detail::TapeNode node, const Tensor& value, bool needs_grad);
  // A value as it enters: in f64 on a tape of that precision.
  Tensor entering(const Tensor& value) const;
  Var leaf_of(Parameter& parameter);
  bool holds(const Var& x) const { return x.generation_ == generation_; }
  // Runs backward from the given gradients of several values; that of a shared value has a sample
  // axis in front. Values that need no gradient are skipped.
  void backward_from(std::vector<std::pair<Var, Tensor>> gradients, GradSink& sink, Keep keep);

  State state_;
  std::vector<Var> casts_;  // pairs of a shared value and its conversion
  SampleWeights sample_weights_;
  std::vector<detail::TapeNode> nodes_;
  std::vector<std::pair<int, Tensor>> grads_;
  std::int64_t generation_;
  std::int64_t grads_generation_;  // of the last backward
  Mode mode_;
};

}  // namespace sotto
