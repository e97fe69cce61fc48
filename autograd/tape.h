// The tape: a list of what was computed, in order, and backward over it. Execution order is
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

// The name of an operation. Making one registers it, and only registered operations can be
// recorded, so that tests can ask for a check of each.
struct Op {
  // Whether its backward also takes gradients with an axis of rows in front, and hands on such:
  // then the gradients of many samples pass a shared value at once. Adjoint::batch_dims() tells the
  // two apart.
  enum class Batchable { no, yes };
  // Whether its result has other rows than its inputs, several for each sample or again one.
  enum class Rows { kept, changes_sample_count };

  explicit Op(const char* name, Batchable batchable = Batchable::no, Rows rows = Rows::kept);
  const char* name;
  Batchable batchable;
  Rows rows;
};
std::span<const char* const> registered_ops();

// A value on a tape (or a constant, which is on none).
class Var {
 public:
  Var() = default;
  const Tensor& value() const { return value_; }
  const Shape& shape() const { return value_.shape(); }
  int rank() const { return value_.rank(); }
  Dtype dtype() const { return value_.dtype(); }
  SampleAxis samples() const { return samples_; }
  // The tape it was recorded on. Throws for a default-constructed Var.
  Tape& tape() const;
  // Whether a gradient flows into it.
  bool needs_grad() const { return needs_grad_; }
  // Whether the other one is this very value, and not one like it.
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
  std::int64_t generation_ = 0;  // of the tape: another one whenever it was emptied
  bool needs_grad_ = false;
};

// What a node's backward hands on. Inputs are numbered as they were recorded.
class Adjoint {
 public:
  // Whether input i wants a gradient; work for others can be left out.
  bool wants(int i) const;
  // The gradient of an input that is batched as the node is (or of any input of a shared node), in
  // the input's shape.
  void input(int i, const Tensor& dx);
  // The gradient of a shared input of a batched node.
  void shared(int i, const PerSampleGrad& gradient);
  // For elementwise ops: a gradient in the node's shape, summed here over what was broadcast.
  void broadcast(int i, const Tensor& full);
  // Whether of gradients of shared inputs their sum over samples is all that is asked for.
  bool sums_only() const;
  // How many axes of rows the gradient has in front of the node's: 1 or 0. What input() is given
  // has as many in front of the input's.
  int batch_dims() const { return rows_ < 0 ? 0 : 1; }
  // A shape with these axes in front.
  Shape with_batch_dims(const Shape& shape) const;
  // Where a gradient like dy can be written: over dy itself if nothing else holds it, whose values
  // are gone then, else a new tensor. For the last thing that a backward makes of its dy.
  Tensor in_place(const Tensor& dy) const;

 private:
  friend class Segment;
  friend class Tape;
  Adjoint(Tape& tape, int node, std::int64_t rows = -1) : tape_(tape), node_(node), rows_(rows) {}
  const Var& input_var(int i) const;

  Tape& tape_;
  int node_;
  std::int64_t rows_;  // -1: none
};

struct TapeOptions {
  // Refuse ops that mix samples, and deliver gradients only to sinks that bound each sample's
  // influence.
  bool private_data = false;
  // Dropout and the like are active.
  bool training = true;
  // f16 or bf16: operations compute in it where they can (precision.h). f32: as their inputs are.
  Dtype precision = Dtype::f32;
  // Key of the public randomness: the same seed, step and row give the same draw, whatever the
  // split into physical batches. On private data a row's number must not depend on which other rows
  // were drawn: `rows` names them. Without it they are first_row, first_row + 1, ...
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::int64_t first_row = 0;
  std::vector<std::int64_t> rows = {};

  // Of a sample. Throws std::invalid_argument for one beyond `rows`.
  std::uint64_t row(std::int64_t sample) const;
};

class Tape {
 public:
  using Backward = std::function<void(const Tensor& dy, Adjoint& adjoint)>;
  // How the gradient of a shared value follows for the op's one input without losing its form.
  using PullBack = std::function<PerSampleGrad(const PerSampleGrad& gradient)>;

  // Throws std::invalid_argument for a precision that is not f32, f16 or bf16.
  explicit Tape(const TapeOptions& options = {});
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // A value with one slice for each sample along `axis`. Throws when the number of samples differs
  // from that of an earlier input. With `wants_grad` its gradient is kept for grad().
  Var input(const Tensor& value, int axis = 0, bool wants_grad = false);
  // A value with several rows for each sample along `axis`: of n samples, row r belongs to sample
  // r mod n, as where views of a batch were put one after the other. Gradients of parameters are
  // those of whole samples. split_views() makes one row for each sample of it again.
  Var input_views(const Tensor& value, std::int64_t views, int axis = 0, bool wants_grad = false);
  // A value that is the same for all samples and not learned. On an ordinary tape `axis` may be
  // SampleAxis::mixed().
  Var constant(const Tensor& value, SampleAxis samples = SampleAxis::shared(),
               bool wants_grad = false);
  // A parameter; its leaf is made at the first use.
  Var use(Parameter& parameter);

  // Puts an op's result on the tape: the value, where its sample axis lies, and how its inputs'
  // gradients follow from its own. Without `pull_back` the gradient of a shared value passes as
  // rows.
  Var record(const Op& op, std::vector<Var> inputs, const Tensor& value, SampleAxis samples,
             Backward backward, PullBack pull_back = nullptr);
  // An op that combines samples: throws on a private tape, naming the op, the shape and what to use
  // instead (without `advice`, what there is for statistics of a batch); otherwise mixed.
  SampleAxis mix(const char* op, const Var& x, const char* advice = nullptr) const;

  enum class Keep { nothing, graph };
  // Delivers the gradient of seed * sum(loss) to the sink. On a private tape the loss is one number
  // for each sample, [n], and the sink bounds influence. Afterwards the tape is empty, unless the
  // graph is kept for another backward. On a tape with a precision the loss is f32 or f64.
  void backward(const Var& loss, GradSink& sink, double seed = 1, Keep keep = Keep::nothing);
  // Forgets what was recorded, as a backward does that keeps nothing.
  void clear();
  // The gradient of an input made with wants_grad, after backward; zeros when nothing reached it.
  Tensor grad(const Var& input) const;

  // The number of samples; -1 before the first batched input.
  std::int64_t sample_count() const { return sample_count_; }
  // How many rows a batched value has for each sample: 1, or more of views.
  std::int64_t views(const Var& x) const;
  const TapeOptions& options() const { return options_; }
  // In force now (PrecisionRegion); nothing where operations compute as their inputs are.
  std::optional<Dtype> precision() const { return precision_; }
  // A key of public randomness, another one at each call.
  PhiloxKey next_key();
  // Whether it is no segment's (segment.h), but that of a whole pass.
  bool is_root() const { return mode_ == Mode::record; }
  // Whether a segment runs again on it (segment.h): what counts calls did so the first time.
  bool is_recomputing() const { return mode_ == Mode::repeat; }

 private:
  friend class Adjoint;
  friend class PrecisionRegion;
  friend Var cast(const Var& x, Dtype dtype);
  friend class Segment;
  // What decides the values of what is run: a tape made from it runs the same way.
  struct State {
    TapeOptions options;
    std::int64_t sample_count = -1;
    std::uint64_t draws = 0;
    std::optional<Dtype> precision;
  };
  // Record for backward; for values alone, of nodes only which parameters they are; record again.
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
    std::vector<PerSampleGrad> rows;  // of shared values
    Tensor sum;                       // of theirs, where the sink wants no more
    // All rows of a shared value, and the sum as one.
    std::vector<PerSampleGrad> take_rows();
  };

  Var append(Node node, const Tensor& value, bool needs_grad);
  void check_rows(const Op& op, const std::vector<Var>& inputs, const Tensor& value,
                  SampleAxis samples) const;
  // Another number at each call, so that values of a tape that is gone fit no other.
  static std::int64_t next_generation();
  bool holds(const Var& x) const { return x.index_ < 0 || x.generation_ == generation_; }
  void check_backward(const Var& loss, const GradSink& sink) const;
  // Backward from gradients of several values, of shared ones with an axis of rows in front. Values
  // without a gradient are passed over.
  void backward_from(std::vector<std::pair<Var, Tensor>> gradients, GradSink& sink, Keep keep);
  void visit(int index, GradSink& sink);
  void pull_back(int index);
  Tensor rows_of(const std::vector<PerSampleGrad>& uses) const;
  void pull_rows(int index, const Tensor& rows);
  void pull_each_row(int index, const Tensor& rows);

  TapeOptions options_;
  std::optional<Dtype> precision_;
  std::vector<Var> casts_;  // shared values, each with what it was converted to after it
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
