// The tape: a list of recorded operations, and backward over it. Operations are recorded in
// topological order, so backward walks the list from its end.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>

#include "autograd/sample_axis.h"
#include "autograd/sink.h"
#include "core/random/philox.h"

namespace sotto {

class Tape;
class Adjoint;

// The name and properties of an operation. Constructing an Op registers it; only registered
// operations can be recorded, so that tests can require a check of each.
struct Op {
  // Says whether backward also accepts a cotangent with a leading sample axis (a batching rule, as
  // in vmap). Then per-sample cotangents of a shared value are pulled back in one call; otherwise
  // one call per sample. Adjoint::batch_dims() is 1 in the first case.
  enum class Batchable { no, yes };
  // Says whether the op changes how many rows each sample has (join_views: one to many;
  // split_views: back to one).
  enum class SampleCount { kept, changes_sample_count };

  explicit Op(const char* name, Batchable batchable = Batchable::no,
              SampleCount rows = SampleCount::kept);
  const char* name;
  Batchable batchable;
  SampleCount rows;
};
std::span<const char* const> registered_ops();

// A value on a tape; a default-constructed Var is on none. Tape::input(), constant() and use() make
// Vars, and the operations of autograd/ops.h record their results: `Var y = relu(x + b);`
class Var {
 public:
  Var() = default;
  const Tensor& value() const { return value_; }
  const Shape& shape() const { return value_.shape(); }
  int rank() const { return value_.rank(); }
  Dtype dtype() const { return value_.dtype(); }
  SampleAxis samples() const { return samples_; }
  // The tape on which it was recorded. Throws for a default-constructed Var.
  Tape& tape() const;
  // True if backward computes a gradient for it.
  bool needs_grad() const { return needs_grad_; }
  // True if `other` is this recorded value, not merely an equal one.
  bool is(const Var& other) const {
    return tape_ == other.tape_ && index_ == other.index_ && generation_ == other.generation_ &&
           value_.view().data == other.value_.view().data && value_.shape() == other.value_.shape();
  }

 private:
  friend class Tape;
  friend class Adjoint;
  Tensor value_;
  SampleAxis samples_ = SampleAxis::shared();
  Tape* tape_ = nullptr;
  int index_ = -1;
  std::int64_t generation_ =
      0;  // generation of the tape, which changes whenever the tape is emptied
  bool needs_grad_ = false;
};

// Receives the gradients that a node's backward computes. Inputs are numbered as they were
// recorded.
class Adjoint {
 public:
  // True if input i wants a gradient; backward need not compute others.
  bool wants(int i) const;
  // Adds the gradient, in the input's shape, of an input that is batched like the node (or of any
  // input of a shared node).
  void input(int i, const Tensor& dx);
  // Adds the per-sample gradient of a shared input of a batched node.
  void shared(int i, const PerSampleGrad& gradient);
  // Adds the gradient of an input of an elementwise op. `full` has the node's shape and is summed
  // over the broadcast axes.
  void broadcast(int i, const Tensor& full);
  // True if only the sum over samples of shared inputs' gradients is needed.
  bool sums_only() const;
  // The number of sample axes (0 or 1) that dy has in front of the node's axes. Gradients passed to
  // input() have as many in front of the input's axes.
  int batch_dims() const { return rows_ < 0 ? 0 : 1; }
  // The shape with these axes in front.
  Shape with_batch_dims(const Shape& shape) const;
  // An output buffer shaped like dy: dy itself if no one else references it (it is then
  // overwritten), else a new tensor. Use it for the last result computed from dy.
  Tensor in_place(const Tensor& dy) const;

 private:
  friend class Segment;
  friend class Tape;
  Adjoint(Tape& tape, int node, std::int64_t rows = -1) : tape_(tape), node_(node), rows_(rows) {}
  const Var& input_var(int i) const;

  Tape& tape_;
  int node_;
  std::int64_t rows_;  // size of the leading sample axis; -1: none
};

// Options of a tape: `Tape tape({.private_data = true, .seed = 7});`
struct TapeOptions {
  // Refuses ops that mix samples, and delivers gradients only to sinks that bound each sample's
  // influence.
  bool private_data = false;
  // Enables dropout and similar operations of training.
  bool training = true;
  // f16 or bf16: operations compute in it where possible (precision.h). f32: in the type of their
  // inputs.
  Dtype precision = Dtype::f32;
  // The key of the public randomness: equal seed, step and row give equal draws, whatever the
  // division into physical batches. On private data the number of a row must not depend on the
  // other rows of the batch: `rows` holds the numbers. If empty, they are first_row, first_row + 1,
  // ...
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::int64_t first_row = 0;
  std::vector<std::int64_t> rows = {};

  // The row number of a sample. Throws std::invalid_argument for a sample beyond `rows`.
  std::uint64_t sample_id(std::int64_t sample) const;
};

// Records the operations on its Vars and computes their gradients. Use one Tape per physical batch.
// With TapeOptions::private_data it refuses operations that mix samples, and delivers gradients
// only to sinks that bound each sample's influence.
//   Tape tape;
//   const Var loss = mse_loss(linear(tape.input(x), tape.use(w)), tape.input(targets));
//   SumSink sink;
//   tape.backward(loss, sink);
class Tape {
 public:
  using Backward = std::function<void(const Tensor& dy, Adjoint& adjoint)>;
  // Computes the per-sample gradient of the op's one input from that of its shared result, in
  // factored form.
  using PullBack = std::function<PerSampleGrad(const PerSampleGrad& gradient)>;

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

  // Records the result of an op: its value, its sample axis, and the backward that computes its
  // inputs' gradients from its own. Without `pull_back` the per-sample gradient of a shared result
  // is materialized before it is pulled back.
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
  // The precision in force (PrecisionRegion); nullopt if operations compute in their inputs' type.
  std::optional<Dtype> precision() const { return precision_; }
  // A key of public randomness, different at each call.
  PhiloxKey next_key();
  // True for the tape of a training step, false for the inner tape of a checkpointed segment.
  bool is_root() const { return mode_ == Mode::record; }
  // True while a checkpointed segment is recomputed; call counters must not count again.
  bool is_recomputing() const { return mode_ == Mode::repeat; }

 private:
  friend class Adjoint;
  friend class PrecisionRegion;
  friend Var cast(const Var& x, Dtype dtype);
  friend class Segment;
  // The state that determines the values of a run: a tape made from it computes equal values.
  struct State {
    TapeOptions options;
    std::int64_t sample_count = -1;
    std::uint64_t draws = 0;
    std::optional<Dtype> precision;
  };
  // record: for backward. values: for values only; a node holds only its parameter. repeat: records
  // the recomputation of a segment.
  enum class Mode { record, values, repeat };
  Tape(const State& state, Mode mode)
      : options_(state.options),
        precision_(state.precision),
        sample_count_(state.sample_count),
        draws_(state.draws),
        mode_(mode) {}
  State state() const { return {options_, sample_count_, draws_, precision_}; }

  struct Node {
    const char* name = "";
    std::vector<Var> inputs;
    Shape shape;
    Dtype dtype = Dtype::f32;
    SampleAxis samples = SampleAxis::shared();
    const char* module = no_text;  // that recorded it
    Parameter* parameter = nullptr;
    bool wants_grad = false;
    bool batchable = false;
    Backward backward;
    PullBack pull_back;
  };
  struct Cotangent {
    Tensor value;  // of batched and mixed values, and of shared ones during pull-back
    std::vector<PerSampleGrad> rows;  // per-sample gradients of shared values
    Tensor sum;                       // their sum, if the sink needs no more
    // Moves out the per-sample gradients of a shared value; a sum counts as one row.
    std::vector<PerSampleGrad> take_rows();
  };

  Var append(Node node, const Tensor& value, bool needs_grad);
  void check_rows(const Op& op, const std::vector<Var>& inputs, const Tensor& value,
                  SampleAxis samples) const;
  // A new number at each call, so that values of a deleted tape match no other tape.
  static std::int64_t next_generation();
  bool holds(const Var& x) const { return x.index_ < 0 || x.generation_ == generation_; }
  void check_backward(const Var& loss, const GradSink& sink) const;
  // Backward from the gradients of several values; those of shared values have a sample axis in
  // front. Values without a gradient are skipped.
  void backward_from(std::vector<std::pair<Var, Tensor>> gradients, GradSink& sink, Keep keep);
  void visit(int index, GradSink& sink);
  void pull_back(int index);
  Tensor rows_of(const std::vector<PerSampleGrad>& uses) const;
  void pull_rows(int index, const Tensor& rows);
  void pull_each_row(int index, const Tensor& rows);

  TapeOptions options_;
  std::optional<Dtype> precision_;
  std::vector<Var> casts_;  // pairs of a shared value and its conversion
  std::vector<Node> nodes_;
  std::vector<Cotangent> cotangents_;
  std::vector<std::pair<int, Tensor>> grads_;
  std::int64_t sample_count_ = -1;
  std::int64_t generation_ = next_generation();
  std::int64_t grads_generation_ = generation_;  // of the last backward
  bool sums_only_ = false;                       // GradSink::sums_only(), during a backward
  std::uint64_t draws_ = 0;
  Mode mode_ = Mode::record;
  GradSink* sink_ = nullptr;  // of the running backward
};

}  // namespace sotto
