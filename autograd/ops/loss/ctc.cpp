#include "autograd/ops/loss/ctc.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/adjoint.h"
#include "autograd/op.h"
#include "autograd/ops/loss/class_numbers.h"
#include "autograd/precision.h"
#include "autograd/sample_axis_rules.h"
#include "kernels/functors/functors.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

const Op ctc_op("ctc_loss", {.precision = Op::Precision::f32});

// The logarithm of probability zero: finite, so that differences are not NaN.
constexpr double never = -1e30;

// The targets of a batch as states of an automaton: the labels, with a blank before each and after
// the last, L = 2 S + 1. Probabilities are logarithms in f64.
struct Alignment {
  Tensor ids;                    // [n, L]: the class of each state
  Tensor start;                  // [L]: 0 if a path may start in the state
  Tensor skip;                   // [n, L]: 0 if the state may follow the state two before it
  Tensor end;                    // [n, L]: 0 if a path may end in the state
  std::vector<Tensor> advances;  // per step, [n, 1]: whether the sample has this step
};

std::vector<std::int64_t> lengths_of(const char* what, const Tensor& given, std::int64_t n,
                                     std::int64_t min, std::int64_t max) {
  const Tensor lengths = as_labels(given);
  check(lengths.dtype() == Dtype::i64 && lengths.shape() == Shape{n},
        "ctc_loss: {} lengths {} of shape {} for {} samples", what, name(given.dtype()),
        given.shape(), n);
  const std::vector<std::int64_t> values = lengths.to_vector<std::int64_t>();
  for (const std::int64_t length : values)
    check(length >= min && length <= max, "ctc_loss: {} length {} is not in {} .. {}", what, length,
          min, max);
  return values;
}

// Appends the states of one sample; states past its target are blank and never end a path.
void add_states(const std::int64_t* target, std::int64_t length, std::int64_t width,
                std::int64_t blank, std::vector<std::int64_t>& ids, std::vector<double>& skip,
                std::vector<double>& end) {
  for (std::int64_t s = 0; s < 2 * width + 1; ++s) {
    const std::int64_t label = s / 2;
    const bool labelled = s % 2 == 1 && label < length;
    ids.push_back(labelled ? target[label] : blank);
    skip.push_back(labelled && label > 0 && target[label] != target[label - 1] ? 0 : never);
    end.push_back(s == 2 * length || s == 2 * length - 1 ? 0 : never);
  }
}

Alignment aligned(const Shape& shape, const Tensor& given, const Tensor& input_lengths,
                  const Tensor& target_lengths, std::int64_t blank) {
  const Tensor targets = as_labels(given);
  const std::int64_t steps = shape[0], n = shape[1], classes = shape[2];
  check(targets.dtype() == Dtype::i64 && targets.rank() == 2 && targets.size(0) == n,
        "ctc_loss: targets {} of shape {} for {} samples", name(given.dtype()), given.shape(), n);
  check(blank >= 0 && blank < classes, "ctc_loss: blank {} of {} classes", blank, classes);
  const std::int64_t width = targets.size(1), states = 2 * width + 1;
  const auto inputs = lengths_of("input", input_lengths, n, 1, steps);
  const auto labels = lengths_of("target", target_lengths, n, 0, width);
  const std::vector<std::int64_t> all = targets.to_vector<std::int64_t>();
  std::vector<std::int64_t> ids;
  std::vector<double> skip, end;
  for (std::int64_t k = 0; k < n; ++k) {
    const std::int64_t length = labels[static_cast<std::size_t>(k)];
    const std::int64_t* target = all.data() + k * width;
    for (std::int64_t i = 0; i < length; ++i)
      check(target[i] >= 0 && target[i] < classes && target[i] != blank,
            "ctc_loss: label {} of {} classes with blank {}", target[i], classes, blank);
    add_states(target, length, width, blank, ids, skip, end);
  }
  std::vector<double> start(static_cast<std::size_t>(states), never);
  std::fill_n(start.begin(), std::min<std::int64_t>(2, states), 0.0);
  Alignment a{Tensor::from(ids, {n, states}),
              Tensor::from(start, {states}),
              Tensor::from(skip, {n, states}),
              Tensor::from(end, {n, states}),
              {}};
  for (std::int64_t t = 0; t < steps; ++t) {
    std::vector<double> advances;
    for (const std::int64_t length : inputs) advances.push_back(t < length ? 1 : 0);
    a.advances.push_back(Tensor::from(advances, {n, 1}));
  }
  return a;
}

Tensor maximum(const Tensor& a, const Tensor& b) {
  return binary(binary_index<functors::Maximum>, a, b);
}
Tensor exp(const Tensor& x) { return unary(unary_index<functors::Exp>, x); }

// log(e^a + e^b + e^c)
Tensor log_sum(const Tensor& a, const Tensor& b, const Tensor& c) {
  const Tensor largest = maximum(maximum(a, b), c);
  const auto part = [&](const Tensor& x) { return exp(sub(x, largest)); };
  return add(largest, unary(unary_index<functors::Log>, add(add(part(a), part(b)), part(c))));
}

// [n, L] with the states moved `by` places later (earlier if negative); `never` fills the gap.
Tensor moved(const Tensor& x, std::int64_t by) {
  const std::int64_t states = x.size(1), distance = std::min(std::abs(by), states);
  const Tensor gap = full({x.size(0), distance}, never, Dtype::f64, x.device());
  return by > 0 ? concat({gap, x.slice(1, 0, states - distance)}, 1)
                : concat({x.slice(1, distance, states), gap}, 1);
}

// The log-probabilities of the states at every step, [T, n, L] in f64.
Tensor emissions(const Tensor& x, const Alignment& a) {
  const Shape shape{x.size(0), a.ids.size(0), a.ids.size(1)};
  const Tensor ids = contiguous(a.ids.unsqueeze(0).expand(shape));
  const Tensor bottom = full({}, never, Dtype::f64, x.device());
  return maximum(take_along(to_dtype(x, Dtype::f64), ids, 2), bottom);
}

// For each step, the log-probability of all path beginnings that end in a state: T tensors [n, L].
std::vector<Tensor> beginnings(const Tensor& emitted, const Alignment& a) {
  std::vector<Tensor> all;
  for (std::int64_t t = 0; t < emitted.size(0); ++t) {
    const Tensor here = emitted.slice(0, t, t + 1).squeeze(0);
    if (t == 0) {
      all.push_back(add(here, a.start));
      continue;
    }
    const Tensor& before = all.back();
    const Tensor arrived = log_sum(before, moved(before, 1), add(moved(before, 2), a.skip));
    all.push_back(where(a.advances[static_cast<std::size_t>(t)], add(arrived, here), before));
  }
  return all;
}

// The negative derivative of the loss with respect to the log-probability of each state at each
// step, [T, n, L]: the probability that a path of the target is in that state.
Tensor occupancy(const Tensor& emitted, const Alignment& a, const std::vector<Tensor>& before,
                 const Tensor& log_probability) {
  Tensor after = a.end;
  std::vector<Tensor> all(before.size());
  for (std::size_t t = before.size(); t-- > 0;) {
    const Tensor here = exp(sub(add(before[t], after), log_probability));
    all[t] = where(a.advances[t], here, zeros({}, Dtype::f64)).unsqueeze(0);
    const auto step = static_cast<std::int64_t>(t);
    const Tensor emitting = add(after, emitted.slice(0, step, step + 1).squeeze(0));
    const Tensor earlier = log_sum(emitting, moved(emitting, -1), moved(add(emitting, a.skip), -2));
    after = where(a.advances[t], earlier, after);
  }
  return concat(all, 0);
}

// log(sum_s e^x[s]), [n, 1].
Tensor log_sum_states(const Tensor& x) {
  const Tensor largest = reduce(Reduction::max, x, {1}, true);
  return add(largest, unary(unary_index<functors::Log>, sum(exp(sub(x, largest)), {1}, true)));
}

// The losses, and the log-probabilities that normalize the gradient, each [n].
struct Outcome {
  Tensor loss, normalizer;
};

Outcome outcome(const Tensor& log_probability, bool zero_infinity) {
  std::vector<double> loss, normalizer;
  for (const double value : log_probability.to_vector<double>()) {
    const bool fits = !(value < never / 2);  // NaN stays NaN
    loss.push_back(fits ? -value : zero_infinity ? 0 : HUGE_VAL);
    normalizer.push_back(fits ? value : zero_infinity ? HUGE_VAL : std::nan(""));
  }
  const auto there = [&](const std::vector<double>& x, const Shape& shape) {
    return Tensor::from(x, shape).to(log_probability.device());
  };
  return {there(loss, {std::ssize(loss)}), there(normalizer, {std::ssize(loss), 1})};
}

}  // namespace

Var ctc_loss(const Var& log_probabilities, const Tensor& targets, const Tensor& input_lengths,
             const Tensor& target_lengths, const CtcOptions& options) {
  Var x = log_probabilities;
  cast_inputs(ctc_op, {&x});
  check(x.rank() == 3 && x.shape()[0] > 0, "ctc_loss: log-probabilities {} are not [T, n, C]",
        x.shape());
  const SampleAxis samples = preserve_sample_axis(ctc_op, x, {0, 2});
  x.tape().check_plain_rows("ctc_loss", "targets and lengths", samples);
  const Alignment a = aligned(x.shape(), targets, input_lengths, target_lengths, options.blank);
  const Tensor emitted = emissions(x.value(), a);
  const std::vector<Tensor> before = beginnings(emitted, a);
  const Outcome y = outcome(log_sum_states(add(before.back(), a.end)), options.zero_infinity);
  return x.tape().record(
      ctc_op, {x}, to_dtype(y.loss, x.dtype()), samples.batched() ? SampleAxis(0) : samples,
      [=, shape = x.shape(), normalizer = y.normalizer](const Tensor& dy, Adjoint& adjoint) {
        const Tensor there = occupancy(emitted, a, before, normalizer);
        const Tensor ids = contiguous(a.ids.unsqueeze(0).expand(there.shape()));
        const Tensor by_class = to_dtype(put_along(there, ids, 2, shape), dy.dtype());
        adjoint.input(0, mul(scale(by_class, -1), reshape(dy, {1, shape[1], 1})));
      });
}

}  // namespace sotto
