// Random graphs of the operations on the tape, for the law that a sample's values and gradients are
// functions of that sample and of public values, whatever its neighbours hold. A plan is a list of
// seeds, one for each step; a step takes one operation of fuzzed_ops(), and its decisions depend on
// its own seed and on sizes other than the number of samples.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <vector>

#include "autograd/parameter.h"
#include "autograd/tape.h"
#include "core/random/philox.h"

namespace sotto {

struct GraphPlan {
  std::uint64_t seed = 0;
  std::int64_t samples = 0;
  Dtype dtype = Dtype::f32;      // of inputs and parameters
  Dtype precision = Dtype::f32;  // of the tape
  std::vector<std::uint64_t> steps = {};
};

// A plan of up to 14 steps and 5 samples in any precision, from one number.
GraphPlan random_graph(std::uint64_t seed);

// What some samples hold: their own values, others, or numbers that spoil what reads them.
enum class Held { own, other, nan, infinite, huge };

// The samples of a batch, by number, and what the `changed` ones among them hold.
struct GraphBatch {
  std::vector<std::int64_t> samples = {};
  std::vector<std::int64_t> changed = {};
  Held held = Held::own;
};

class FuzzedGraph;

// What an operation of the table takes its arguments from.
class GraphStep {
 public:
  GraphStep(FuzzedGraph& graph, Tape& tape, std::uint64_t seed);

  std::int64_t draw(std::int64_t low, std::int64_t high) {
    return low + random_.below(high - low + 1);
  }
  bool one_in(std::int64_t n) { return random_.below(n) == 0; }
  std::int64_t size();    // of an axis: up to 4, sometimes 0
  Shape sizes(int rank);  // size() for each axis
  Tape& tape() { return tape_; }
  std::int64_t samples() const { return tape_.sample_count(); }

  Var x();                 // an earlier value, batched along any axis or shared, or a new input
  Var x(int rank);         // one of `rank` axes, with the samples first
  Var shared();            // an earlier shared value, or a parameter
  Var like(const Var& x);  // a value that broadcasts with x
  Var same(const Var& x);  // a value of x's shape and sample axis
  Var within(const Var& x, double low, double high);  // x mapped between two bounds
  int axis(const Var& x);                             // an axis of x, rarely that of the samples
  // A new input with these features, in any memory order, and the samples along `axis`.
  Var input(const Shape& features, int axis = 0);
  // The same of integers below `below`, i64.
  Var ids(const Shape& features, std::int64_t below, int axis = 0);
  Var hidden(const Shape& features);  // a mask that hides where it is not 0, of any type for that
  Var parameter(const Shape& shape);
  Var weight(const Shape& shape);  // a parameter, or a function of one
  // A shared value that pretends to have a row for each sample: [samples, ...features].
  Var shared_rows(const Shape& features);
  Var also(const Var& y);  // y, which later steps may use, too

 private:
  // Rows of the batch's samples, [samples, ...features], of value(random, held).
  template <class T, class F>
  Tensor rows(const Shape& features, F&& value);
  Tensor laid_out(const Tensor& x, int samples);

  FuzzedGraph& graph_;
  Tape& tape_;
  PublicRandom random_;
};

struct FuzzedOp {
  const char* name;  // of the function
  Var (*apply)(GraphStep& step);
  // A part of the error with which a private tape must refuse it; null if it may accept.
  const char* refused = nullptr;
};

// Every public function on the tape, once or more (tests/checks/covered.py sees to it).
const std::vector<FuzzedOp>& fuzzed_ops();
// Its parts.
std::span<const FuzzedOp> fuzzed_elementwise();
std::span<const FuzzedOp> fuzzed_layouts();
std::span<const FuzzedOp> fuzzed_structures();
std::span<const FuzzedOp> fuzzed_losses();
std::span<const FuzzedOp> fuzzed_refusals();

// A graph that is run on several batches.
class FuzzedGraph {
 public:
  explicit FuzzedGraph(GraphPlan plan) : plan_(std::move(plan)) {}

  // Records the graph. Returns one loss for each sample, in f32 or f64.
  Var loss(Tape& tape, const GraphBatch& batch);
  TapeOptions tape_options(const GraphBatch& batch) const;

  const GraphPlan& plan() const { return plan_; }
  std::deque<Parameter>& parameters() { return parameters_; }
  // Of the last loss(): its values, each with the name of its operation; its inputs with gradients;
  // for each step what came of it, the operation or a refusal; and operations that were not refused
  // as they must be.
  struct Named {
    const char* op;
    Var value;
  };
  const std::vector<Named>& values() const { return values_; }
  const std::vector<Var>& inputs() const { return inputs_; }
  const std::vector<std::string>& outcomes() const { return outcomes_; }
  const std::vector<std::string>& accepted_wrongly() const { return accepted_wrongly_; }

 private:
  friend class GraphStep;
  void step(Tape& tape, std::uint64_t seed);
  void take(const char* op, const Var& y);

  GraphPlan plan_;
  GraphBatch batch_;
  std::deque<Parameter> parameters_;
  std::size_t used_ = 0;   // parameters of this loss so far
  int inputs_so_far_ = 0;  // inputs of this loss so far
  const char* op_ = "";
  std::vector<Named> values_;
  std::vector<Var> inputs_, pool_;
  std::vector<std::string> outcomes_, accepted_wrongly_;
};

}  // namespace sotto
