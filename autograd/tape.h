// The tape: a list of recorded operations, and backward over it. Operations are recorded in
// topological order, so backward walks the list from its end.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "autograd/adjoint.h"
#include "autograd/op.h"
#include "autograd/sink.h"
#include "autograd/tape_node.h"
#include "autograd/tape_options.h"
#include "autograd/var.h"
#include "core/random/philox.h"

namespace sotto {

class Tape {
 public:
  // Hands the gradients of an op's inputs, which follow from that of its result, to the adjoint.
  using Backward = detail::TapeNode::Backward;
  // The per-sample gradient of the op's one input, a shared value, in the form that the result's
  // has.
  using PullBack = detail::TapeNode::PullBack;

  // Throws std::invalid_argument for a precision that is not f32, f16 or bf16.
  explicit Tape(const TapeOptions& options = {});
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // A batched value with one slice per sample along `axis`. Throws if its number of samples differs
  // from that of an earlier input. With `wants_grad` its gradient is kept for grad().
  Var input(const Tensor& value, int axis = 0, bool wants_grad = false);
  // A batched value with several rows (views) per sample along `axis`: row r belongs to sample r
  // mod n, as join_views() orders them. Per-sample gradients sum over all views of a sample.
  // split_views() separates the views.
  Var input_views(const Tensor& value, std::int64_t views, int axis = 0, bool wants_grad = false);
  // A value that is equal for all samples and not trained. On an ordinary tape `samples` may be
  // SampleAxis::mixed().
  Var constant(const Tensor& value, SampleAxis samples = SampleAxis::shared(),
               bool wants_grad = false);
  // A parameter; its first use on the tape creates its leaf.
  Var use(Parameter& parameter);

  // Puts an op's result on the tape: the value, where its sample axis lies, and how its inputs'
  // gradients follow from its own. Without `pull_back` per-sample gradients of a shared value are
  // materialized.
  Var record(const Op& op, std::vector<Var> inputs, const Tensor& value, SampleAxis samples,
             Backward backward, PullBack pull_back = nullptr);
  // Called by an op that combines samples. On a private tape it throws, naming the op, the shape
  // and a replacement (`advice`, or by default one for batch statistics); otherwise it returns
  // mixed.
  SampleAxis mix(const char* op, const Var& x, const char* advice = nullptr) const;

  enum class Keep { nothing, graph };
  // Delivers the gradient of seed * sum(loss) to the sink. On a private tape the loss must be one
  // number per sample, [n], and the sink must bound influence. On a tape with a precision the loss
  // must be f32 or f64. Afterwards the tape is empty, unless Keep::graph keeps it for another
  // backward.
  void backward(const Var& loss, GradSink& sink, double seed = 1, Keep keep = Keep::nothing);
  // Empties the tape, as backward does with Keep::nothing.
  void clear();
  // After backward, the gradient of an input made with wants_grad; zeros if none reached it.
  Tensor grad(const Var& input) const;

  // The number of samples; -1 before the first batched input.
  std::int64_t sample_count() const { return sample_count_; }
  // The number of rows that a batched value has per sample: 1, or the number of views.
  std::int64_t views(const Var& x) const;
  const TapeOptions& options() const { return options_; }
  // The precision in force (PrecisionRegion); nullopt where operations compute as their inputs are.
  std::optional<Dtype> precision() const { return precision_; }
  // A new key of public randomness at each call.
  PhiloxKey next_key();
  // True for the tape of a training step, false for the inner tape of a checkpointed segment.
  bool is_root() const { return mode_ == Mode::record; }
  // True while a checkpointed segment is recomputed; call counters must not count again.
  bool is_recomputing() const { return mode_ == Mode::repeat; }

 private:
  friend class PrecisionRegion;
  friend Var cast(const Var& x, Dtype dtype);
  friend class Segment;
  using Node = detail::TapeNode;
  // A tape made from it computes the same values.
  struct State {
    TapeOptions options;
    std::int64_t sample_count = -1;
    std::uint64_t draws = 0;
    std::optional<Dtype> precision;
  };
  // Record for backward; compute values alone, where nodes keep only their parameters; record
  // again.
  enum class Mode { record, values, repeat };
  Tape(const State& state, Mode mode)
      : options_(state.options),
        precision_(state.precision),
        sample_count_(state.sample_count),
        draws_(state.draws),
        mode_(mode) {}
  State state() const { return {options_, sample_count_, draws_, precision_}; }

  Var append(Node node, const Tensor& value, bool needs_grad);
  void check_rows(const Op& op, const std::vector<Var>& inputs, const Tensor& value,
                  SampleAxis samples) const;
  // A new number at each call, so that values of a tape that is gone fit no other.
  static std::int64_t next_generation();
  bool holds(const Var& x) const { return x.index_ < 0 || x.generation_ == generation_; }
  void check_backward(const Var& loss, const GradSink& sink) const;
  // Backward from gradients of several values, of shared ones with a sample axis in front. Values
  // without a gradient are passed over.
  void backward_from(std::vector<std::pair<Var, Tensor>> gradients, GradSink& sink, Keep keep);

  TapeOptions options_;
  std::optional<Dtype> precision_;
  std::vector<Var> casts_;  // pairs of a shared value and its conversion
  std::vector<Node> nodes_;
  std::vector<std::pair<int, Tensor>> grads_;
  std::int64_t sample_count_ = -1;
  std::int64_t generation_ = next_generation();
  std::int64_t grads_generation_ = generation_;  // of the last backward
  std::uint64_t draws_ = 0;
  Mode mode_ = Mode::record;
};

}  // namespace sotto
