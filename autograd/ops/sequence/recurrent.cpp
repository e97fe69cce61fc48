#include "autograd/ops/sequence/recurrent.h"

#include <algorithm>
#include <memory>

#include "autograd/adjoint.h"
#include "autograd/op.h"
#include "autograd/ops/conv_pool.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/indexing.h"
#include "autograd/ops/sequence/lstm.h"
#include "autograd/ops/sequence/recurrent_cells.h"
#include "autograd/ops/shape_ops.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/precision.h"
#include "autograd/sample_axis_rules.h"
#include "autograd/segment.h"
#include "autograd/trace.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

const Op rnn_op("rnn", {.captures = Op::Captures::shared, .precision = Op::Precision::lower});
const Op gru_op("gru", {.captures = Op::Captures::shared, .precision = Op::Precision::lower});
const Op lstm_op("lstm", {.captures = Op::Captures::shared, .precision = Op::Precision::lower});

const Op& op_of(Cell cell) {
  return cell == Cell::lstm ? lstm_op : cell == Cell::gru ? gru_op : rnn_op;
}

// [n, t, k] as [t, n, k], and back.
Tensor exchanged(const Tensor& x) { return contiguous(x.transpose(0, 1)); }

// [t, n, k] times [k, j].
Tensor row_product(const Tensor& x, const Tensor& w) {
  const Tensor rows = reshape(x, {x.size(0) * x.size(1), x.size(2)});
  Shape shape = x.shape();
  shape[shape.rank() - 1] = w.size(1);
  return reshape(gemm(rows, w), shape);
}

// A sequence in the order of its steps, with the tensors that its backward reads: [t, n, ...].
struct Sequence {
  Cell cell;
  Tensor ih, hh, hr;  // weights; hr may be undefined
  Tensor x;           // zero at steps that are not valid
  Tensor valid;       // [t, n, 1] of x's type; undefined if all steps are valid
  Tensor before;      // [t, n, out], the state before each step
  std::vector<CellStep> steps;
  bool reverse = false;

  std::int64_t length() const { return x.size(0); }
  std::int64_t at(std::int64_t k) const { return reverse ? length() - 1 - k : k; }
  // `a` for samples with a valid step t, else `b`.
  Tensor pick(std::int64_t t, const Tensor& a, const Tensor& b) const {
    return valid.defined() ? where(valid.select(0, t), a, b) : a;
  }
};

Tensor zeros_as(const Tensor& x, const Shape& shape) { return zeros(shape, x.dtype(), x.device()); }

// Runs all steps. Returns the outputs [t, n, out], and stores the last c in `c`.
Tensor run(Sequence& s, const Tensor& b_ih, const Tensor& b_hh, Tensor h, Tensor& c) {
  Tensor x_parts = row_product(s.x, s.ih.transpose(0, 1));
  if (b_ih.defined()) x_parts = add(x_parts, b_ih);
  const Tensor y = zeros_as(s.x, {s.length(), h.size(0), h.size(1)});
  s.before = Tensor::empty(y.shape(), y.dtype(), y.device());
  s.steps.resize(static_cast<std::size_t>(s.length()));
  for (std::int64_t k = 0; k < s.length(); ++k) {
    const std::int64_t t = s.at(k);
    copy_into(h, s.before.select(0, t));
    Tensor h_part = gemm(h, s.hh.transpose(0, 1));
    if (b_hh.defined()) h_part = add(h_part, b_hh);
    CellStep& step = s.steps[static_cast<std::size_t>(t)];
    step = cell_step(s.cell, x_parts.select(0, t), h_part, h, c);
    const Tensor next = s.hr.defined() ? gemm(step.h, s.hr.transpose(0, 1)) : step.h;
    copy_into(s.pick(t, next, zeros_as(next, {})), y.select(0, t));
    h = s.pick(t, next, h);
    if (c.defined()) c = s.pick(t, step.c, c);
  }
  return y;
}

// The gradients of one sequence; [t, n, ...].
struct SequenceGradient {
  Tensor x_parts, h_parts;  // of the two sums
  Tensor projected;         // of the output after projection
  Tensor h, c;              // of the initial state
};

SequenceGradient back(const Sequence& s, const Tensor& dy, Tensor dc) {
  const std::int64_t n = s.x.size(1), gates = s.ih.size(0);
  SequenceGradient g{zeros_as(dy, {s.length(), n, gates}), zeros_as(dy, {s.length(), n, gates}),
                     Tensor(), zeros_as(dy, {n, dy.size(2)}), std::move(dc)};
  if (s.hr.defined()) g.projected = zeros_as(dy, {s.length(), n, dy.size(2)});
  const Tensor zero = zeros_as(dy, {});
  for (std::int64_t k = s.length(); k-- > 0;) {
    const std::int64_t t = s.at(k);
    const Tensor out = s.pick(t, add(g.h, dy.select(0, t)), zero);
    if (s.hr.defined()) copy_into(out, g.projected.select(0, t));
    const Tensor dh = s.hr.defined() ? gemm(out, s.hr) : out;
    const CellGradient d = cell_gradient(s.cell, s.steps[static_cast<std::size_t>(t)], dh, g.c);
    copy_into(s.pick(t, d.x_part, zero), g.x_parts.select(0, t));
    copy_into(s.pick(t, d.h_part, zero), g.h_parts.select(0, t));
    Tensor before = gemm(d.h_part, s.hh);
    if (d.h.defined()) before = add(before, d.h);
    g.h = s.pick(t, before, g.h);
    if (g.c.defined()) g.c = s.pick(t, d.c, g.c);
  }
  return g;
}

OpInputs op_inputs(const Var& x, const RecurrentWeights& w, const std::optional<Var>& h0,
                   const std::optional<Var>& c0) {
  OpInputs p{{x, w.ih, w.hh}};
  p.add(p.bias_ih, w.bias_ih);
  p.add(p.bias_hh, w.bias_hh);
  p.add(p.hr, w.hr);
  p.add(p.h0, h0);
  p.add(p.c0, c0);
  return p;
}

void check_recurrent(const char* op, Cell cell, const Var& x, const OpInputs& p,
                     const Tensor& lengths) {
  check(x.rank() == 3 && x.shape()[1] >= 1,
        "{}: input {} is not [samples, steps, features] with a step or more", op, x.shape());
  const Shape &ih = p.inputs[1].shape(), &hh = p.inputs[2].shape();
  const std::int64_t gates = ih.rank() == 2 ? ih[0] : 0, hidden = gates / gate_count(cell);
  check(p.hr < 0 || cell == Cell::lstm, "{}: only an LSTM has a projection", op);
  const std::int64_t out = p.hr >= 0 && hh.rank() == 2 ? hh[1] : hidden;
  check(ih.rank() == 2 && ih[1] == x.shape()[2] && gates % gate_count(cell) == 0 &&
            hh == Shape({gates, out}),
        "{}: weights {} and {} do not fit the input {}", op, ih, hh, x.shape());
  for (const int bias : {p.bias_ih, p.bias_hh}) {
    check(bias < 0 || p.inputs[static_cast<std::size_t>(bias)].shape() == Shape({gates}),
          "{}: a bias does not have {} elements", op, gates);
  }
  const auto is = [&](int place, const Shape& shape) {
    return place < 0 || p.inputs[static_cast<std::size_t>(place)].shape() == shape;
  };
  const std::int64_t n = x.shape()[0];
  check(is(p.hr, {out, hidden}), "{}: the projection is not {} x {}", op, out, hidden);
  check(is(p.h0, {n, out}) && is(p.c0, {n, hidden}),
        "{}: initial states for {} samples are not [{}, {}] and [{}, {}]", op, n, n, out, n,
        hidden);
  for (std::size_t i = 1; i < p.inputs.size(); ++i) {
    const bool state = static_cast<int>(i) == p.h0 || static_cast<int>(i) == p.c0;
    check(state ? p.inputs[i].samples() == x.samples() : p.inputs[i].samples().is_shared(),
          "{}: weights must be shared by all samples, and states must have the samples first", op);
    check(p.inputs[i].dtype() == x.dtype(),
          "{}: dtypes differ: the input is {}, a weight or state {}", op, name(x.dtype()),
          name(p.inputs[i].dtype()));
  }
  if (!lengths.defined()) return;
  x.tape().check_plain_rows(op, "lengths", x.samples());
  check(lengths.shape() == Shape({n}) && lengths.dtype() == Dtype::i64,
        "{}: lengths {} for {} samples", op, lengths.shape(), n);
  for (const std::int64_t length : lengths.to_vector<std::int64_t>()) {
    check(length >= 0 && length <= x.shape()[1], "{}: a length of {} in {} steps", op, length,
          x.shape()[1]);
  }
}

// 1 at the valid steps, else 0: [t, n, 1].
Tensor valid_steps(const Tensor& lengths, std::int64_t t, Dtype dtype) {
  if (!lengths.defined()) return {};
  const std::vector<std::int64_t> all = lengths.to_vector<std::int64_t>();
  std::vector<double> valid;
  for (std::int64_t step = 0; step < t; ++step) {
    for (const std::int64_t length : all) valid.push_back(step < length);
  }
  return to_dtype(Tensor::from(valid, {t, static_cast<std::int64_t>(all.size()), 1}), dtype);
}

// Passes a sequence's gradients to the inputs of the recorded op.
void deliver(const Sequence& s, const SequenceGradient& g, const OpInputs& p, SampleAxis samples,
             Adjoint& adjoint) {
  const auto shared = [&](int place, PerSampleGrad gradient) {
    if (place >= 0 && adjoint.wants(place))
      adjoint.shared(place, for_samples(std::move(gradient), samples));
  };
  const auto weight = [&](int place, const Tensor& b, const Tensor& a) {
    if (place >= 0 && adjoint.wants(place))
      shared(place, PerSampleGrad::outer(exchanged(b), exchanged(a), {b.size(2), a.size(2)}));
  };
  if (adjoint.wants(0)) adjoint.input(0, exchanged(row_product(g.x_parts, s.ih)));
  weight(1, g.x_parts, s.x);
  weight(2, g.h_parts, s.before);
  shared(p.bias_ih, PerSampleGrad::materialized(sum_f32(g.x_parts, {0})));
  shared(p.bias_hh, PerSampleGrad::materialized(sum_f32(g.h_parts, {0})));
  if (s.hr.defined() && adjoint.wants(p.hr)) {
    std::vector<Tensor> unprojected;
    for (const CellStep& step : s.steps) unprojected.push_back(step.h.unsqueeze(0));
    Tensor a = concat(unprojected, 0);
    if (s.valid.defined()) a = where(s.valid, a, zeros_as(a, {}));
    weight(p.hr, g.projected, a);
  }
  if (p.h0 >= 0) adjoint.input(p.h0, g.h);
  if (p.c0 >= 0) adjoint.input(p.c0, g.c);
}

// y [n, t, out]; for an LSTM with one more step that holds c: [n, t + 1, the larger width].
Tensor packed(const Tensor& y, const Tensor& c) {
  const Tensor by_sample = exchanged(y);
  if (!c.defined()) return by_sample;
  const std::int64_t n = y.size(1), t = y.size(0), out = y.size(2), hidden = c.size(1);
  const Tensor all = zeros_as(y, {n, t + 1, std::max(out, hidden)});
  copy_into(by_sample, all.slice(1, 0, t).slice(2, 0, out));
  copy_into(c, all.select(1, t).slice(1, 0, hidden));
  return all;
}

// The state after the last step taken: the last valid step, or step 0 in reverse.
Var last_state(const Var& y, const std::optional<Var>& h0, const SequenceOptions& options) {
  const std::int64_t n = y.shape()[0], t = y.shape()[1], out = y.shape()[2];
  if (!options.lengths.defined()) return select(y, 1, options.reverse ? 0 : t - 1);
  std::vector<std::int64_t> ids;
  std::vector<double> none;
  for (const std::int64_t length : options.lengths.to_vector<std::int64_t>()) {
    const std::int64_t last = options.reverse ? 0 : std::max<std::int64_t>(length - 1, 0);
    ids.insert(ids.end(), static_cast<std::size_t>(out), last);
    none.push_back(length == 0);
  }
  const Tensor last = Tensor::from(ids, {n, 1, out});
  const Var h = squeeze(gather(y, 1, untracked(y.tape(), last, y.samples())), 1);
  if (!h0) return h;
  const Tensor stayed = to_dtype(Tensor::from(none, {n, 1}), y.dtype());
  return where(untracked(y.tape(), stayed, y.samples()), *h0, h);
}

// The numbers of valid steps within begin .. end - 1.
Tensor lengths_between(const Tensor& lengths, std::int64_t begin, std::int64_t end) {
  if (!lengths.defined()) return {};
  std::vector<std::int64_t> part;
  for (const std::int64_t length : lengths.to_vector<std::int64_t>())
    part.push_back(std::clamp<std::int64_t>(length, begin, end) - begin);
  return Tensor::from(part, lengths.shape());
}

// recurrent() as a checkpointed segment: all operands are its inputs, and all results its outputs.
RecurrentResult segment_of_steps(Cell cell, const Var& x, const RecurrentWeights& weights,
                                 const std::optional<Var>& h0, const std::optional<Var>& c0,
                                 const SequenceOptions& options) {
  const OpInputs p = op_inputs(x, weights, h0, c0);
  const auto run = [=](const std::vector<Var>& v) {
    const auto given = [&](int place) {
      return place < 0 ? std::nullopt : std::optional(v[static_cast<std::size_t>(place)]);
    };
    const RecurrentResult y =
        recurrent(cell, v[0], {v[1], v[2], given(p.bias_ih), given(p.bias_hh), given(p.hr)},
                  given(p.h0), given(p.c0), options);
    std::vector<Var> results{y.output, y.h};
    if (y.c) results.push_back(*y.c);
    return results;
  };
  const std::vector<Var> y = segment(run, p.inputs);
  return {y[0], y[1], y.size() > 2 ? std::optional(y[2]) : std::nullopt};
}

Var* place_of(std::optional<Var>& x) { return x ? &*x : nullptr; }

}  // namespace

int gate_count(Cell cell) { return cell == Cell::lstm ? 4 : cell == Cell::gru ? 3 : 1; }

namespace {

// recurrent() for operands of one type.
RecurrentResult run_recurrent(Cell cell, const Var& x, const RecurrentWeights& weights,
                              const std::optional<Var>& h0, const std::optional<Var>& c0,
                              const SequenceOptions& options) {
  const Op& op = op_of(cell);
  const OpInputs p = op_inputs(x, weights, h0, c0);
  check_recurrent(op.name, cell, x, p, options.lengths);
  check(!c0 || cell == Cell::lstm, "{}: only an LSTM has a c state", op.name);
  if (tracing()) {
    trace_attributes({{"bias_ih", p.bias_ih},
                      {"bias_hh", p.bias_hh},
                      {"hr", p.hr},
                      {"h0", p.h0},
                      {"c0", p.c0},
                      {"relu", cell == Cell::relu},
                      {"reverse", options.reverse},
                      {"lengths", options.lengths.defined()}});
  }
  const auto whole = cell == Cell::lstm ? fused_lstm(op, p, options) : std::nullopt;
  if (whole) return *whole;
  const SampleAxis samples = preserve_sample_axis(op, x, {1, 2});
  const std::int64_t n = x.shape()[0], t = x.shape()[1], out = weights.hh.shape()[1],
                     hidden = weights.ih.shape()[0] / gate_count(cell);
  auto s = std::make_shared<Sequence>(Sequence{
      cell, weights.ih.value(), weights.hh.value(), weights.hr ? weights.hr->value() : Tensor(),
      exchanged(x.value()), valid_steps(options.lengths, t, x.dtype())});
  s->reverse = options.reverse;
  if (s->valid.defined()) s->x = where(s->valid, s->x, zeros_as(s->x, {}));
  const auto value_or = [](const std::optional<Var>& v, const Tensor& otherwise) {
    return v ? v->value() : otherwise;
  };
  Tensor c = cell == Cell::lstm ? value_or(c0, zeros_as(s->x, {n, hidden})) : Tensor();
  const Tensor y = run(*s, value_or(weights.bias_ih, {}), value_or(weights.bias_hh, {}),
                       value_or(h0, zeros_as(s->x, {n, out})), c);
  const Var all =
      x.tape().record(op, p.inputs, packed(y, c), samples, [=](const Tensor& d, Adjoint& adjoint) {
        const Tensor dy = exchanged(d.slice(1, 0, t).slice(2, 0, out));
        const Tensor dc =
            cell == Cell::lstm ? contiguous(d.select(1, t).slice(1, 0, hidden)) : Tensor();
        deliver(*s, back(*s, dy, dc), p, samples, adjoint);
      });
  if (cell != Cell::lstm) return {all, last_state(all, h0, options), std::nullopt};
  const Var output = slice(slice(all, 1, 0, t), 2, 0, out);
  return {output, last_state(output, h0, options), slice(select(all, 1, t), 1, 0, hidden)};
}

// On a CPU one kernel runs all steps of an LSTM in f32. Products of single steps in 16 bits take
// three times as long.
bool is_faster_in_f32(const Var& x) {
  const std::optional<Dtype> precision = x.tape().precision();
  return precision && arithmetic_type(*precision) != *precision && x.value().device() == cpu;
}

}  // namespace

RecurrentResult recurrent_in_segments(std::int64_t steps, Cell cell, const Var& x,
                                      const RecurrentWeights& weights, const std::optional<Var>& h0,
                                      const std::optional<Var>& c0,
                                      const SequenceOptions& options) {
  check(steps >= 1, "{}: segments of {} steps", op_of(cell).name, steps);
  check(x.rank() == 3 && x.shape()[1] >= 1,
        "{}: input {} is not [samples, steps, features] with a step or more", op_of(cell).name,
        x.shape());
  const std::int64_t t = x.shape()[1], count = (t + steps - 1) / steps;
  std::vector<Var> outputs(static_cast<std::size_t>(count));
  RecurrentResult last{x, x, c0};
  std::optional<Var> h = h0;
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int64_t at = options.reverse ? count - 1 - k : k, begin = at * steps,
                       end = std::min(t, begin + steps);
    last = segment_of_steps(cell, slice(x, 1, begin, end), weights, h, last.c,
                            {options.reverse, lengths_between(options.lengths, begin, end)});
    outputs[static_cast<std::size_t>(at)] = last.output;
    h = last.h;
  }
  return {concat(outputs, 1), last.h, last.c};
}

namespace {

// recurrent() in f32, with results of the tape's precision.
RecurrentResult in_f32(Cell cell, const Var& x, const RecurrentWeights& weights,
                       const std::optional<Var>& h0, const std::optional<Var>& c0,
                       const SequenceOptions& options) {
  const Dtype precision = *x.tape().precision();
  RecurrentResult y = [&] {
    const PrecisionRegion wide(x.tape(), Dtype::f32);
    return recurrent(cell, x, weights, h0, c0, options);
  }();
  for (Var* v : {&y.output, &y.h, place_of(y.c)})
    if (v) *v = cast(*v, precision);
  return y;
}

}  // namespace

RecurrentResult recurrent(Cell cell, const Var& x, const RecurrentWeights& weights,
                          const std::optional<Var>& h0, const std::optional<Var>& c0,
                          const SequenceOptions& options) {
  Var input = x;
  RecurrentWeights w = weights;
  std::optional<Var> h = h0, c = c0;
  if (cell == Cell::lstm && is_faster_in_f32(x)) return in_f32(cell, x, weights, h0, c0, options);
  cast_inputs(op_of(cell), {&input, &w.ih, &w.hh, place_of(w.bias_ih), place_of(w.bias_hh),
                            place_of(w.hr), place_of(h), place_of(c)});
  return run_recurrent(cell, input, w, h, c, options);
}

}  // namespace sotto
