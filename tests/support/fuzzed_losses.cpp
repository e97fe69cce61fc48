// The losses of random graphs, and what a private tape must refuse.
#include "autograd/ops.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/layers/recurrent_layers.h"
#include "tests/support/fuzzed_graph.h"

namespace sotto {

namespace {

Within within(GraphStep& s) { return static_cast<Within>(s.draw(0, 2)); }

template <class F>
Var pair_loss(GraphStep& s, F&& loss) {
  const Var x = s.x(static_cast<int>(s.draw(1, 3)));
  const Var target = s.same(x);
  return loss(x, target, within(s));
}

// Logits of 3 classes along axis 1, and as many targets.
Var entropy(GraphStep& s) {
  const bool positions = s.one_in(2);
  const Var logits = s.input(positions ? Shape{3, 2} : Shape{3});
  const Tensor targets = s.ids(positions ? Shape{2} : Shape{}, 3).value();
  CrossEntropyOptions options{.label_smoothing = s.one_in(2) ? 0.1 : 0};
  if (s.one_in(2)) options.ignore_index = 1;
  if (s.one_in(3)) options.class_weights = Tensor::from(std::vector{1.0, 0.5, 2.0}, {3});
  if (s.one_in(3)) options.z_loss = 0.01;
  return s.one_in(2) ? cross_entropy(logits, targets, options)
                     : cross_entropy_elements(logits, targets, options);
}

// Logits whose samples lie along another axis than the first.
Var entropy_elements(GraphStep& s) {
  const Var logits = s.input({2, 3}, 1);
  return cross_entropy_elements(logits, s.ids({2}, 3, 1).value(), {.class_axis = 2});
}

Var likelihood(GraphStep& s) {
  const Var x = log_softmax(s.input({3, 2}), 1);
  NllOptions options;
  if (s.one_in(2)) options.ignore_index = 1;
  if (s.one_in(2)) options.class_weights = Tensor::from(std::vector{1.0, 0.5, 2.0}, {3});
  return nll_loss(x, s.ids({2}, 3).value(), options, within(s));
}

// Targets and lengths for connectionist temporal classification of `x`, [T, n, 3].
Var alignment(GraphStep& s, const Var& x) {
  std::vector<Tensor> lengths;
  for (const std::int64_t most : {x.shape()[0], std::int64_t{2}}) {
    std::vector<std::int64_t> values = s.ids({}, most).value().to_vector<std::int64_t>();
    for (auto& v : values) v += most == x.shape()[0];
    lengths.push_back(Tensor::from(values, {std::ssize(values)}));
  }
  std::vector<std::int64_t> targets = s.ids({2}, 2).value().to_vector<std::int64_t>();
  for (auto& v : targets) ++v;
  return ctc_loss(x, Tensor::from(targets, {std::ssize(targets) / 2, 2}), lengths[0], lengths[1],
                  {.zero_infinity = s.one_in(2)});
}

Var triplet(GraphStep& s) {
  const Var x = s.x(2);
  const Var y = s.same(x);
  return triplet_margin_loss(x, y, s.same(x));
}

Var embedded_cosine(GraphStep& s) {
  const Var x = s.x(2);
  return cosine_embedding_loss(x, s.same(x), tanh(s.input({})));
}

RecurrentWeights gru_weights(GraphStep& s) {
  return {.ih = s.parameter({6, 2}), .hh = s.parameter({6, 2})};
}

// The mean over a sequence that all samples share, with their own lengths.
Var mean_of_lengths(GraphStep& s, std::int64_t steps) {
  const Var x = s.shared_rows({3, 2});
  const SequenceOptions options{.reverse = s.one_in(2), .lengths = s.ids({}, 4).value()};
  const RecurrentWeights w = gru_weights(s);
  return mean((steps > 0 ? recurrent_in_segments(steps, Cell::gru, x, w, {}, {}, options)
                         : recurrent(Cell::gru, x, w, {}, {}, options))
                  .h);
}

Var mean_of_layers(GraphStep& s) {
  const Var x = s.shared_rows({3, 2});
  nn::RecurrentInputs inputs;
  inputs.lengths = s.ids({}, 4).value();
  return mean(nn::run_layers(Cell::gru, x, {gru_weights(s)}, inputs, {}).output);
}

Var mean_in_segment(GraphStep& s) {
  const Tensor targets = s.ids({}, 3).value();
  return segment([targets](const Var& x) { return mean(cross_entropy_elements(x, targets)); },
                 s.shared_rows({3}));
}

using W = Within;
using V = const Var&;
const FuzzedOp losses[] = {
    {"reduce_within",
     [](GraphStep& s) {
       const Var x = s.x(2);
       return reduce_within(x, within(s));
     }},
    {"squared_error", [](GraphStep& s) { return pair_loss(s, squared_error); }},
    {"absolute_error", [](GraphStep& s) { return pair_loss(s, absolute_error); }},
    {"mse_loss",
     [](GraphStep& s) { return pair_loss(s, [](V x, V t, W) { return mse_loss(x, t); }); }},
    {"smooth_l1_loss",
     [](GraphStep& s) {
       return pair_loss(s, [](V x, V t, W w) { return smooth_l1_loss(x, t, 0.5, w); });
     }},
    {"huber_loss",
     [](GraphStep& s) {
       return pair_loss(s, [](V x, V t, W w) { return huber_loss(x, t, 0.5, w); });
     }},
    {"binary_cross_entropy",
     [](GraphStep& s) {
       return pair_loss(
           s, [](V x, V t, W w) { return binary_cross_entropy(sigmoid(x), sigmoid(t), w); });
     }},
    {"binary_cross_entropy_with_logits",
     [](GraphStep& s) {
       const std::optional<Var> weight = s.parameter({1});
       return pair_loss(s, [&](V x, V t, W w) {
         return binary_cross_entropy_with_logits(x, sigmoid(t), {weight, weight}, w);
       });
     }},
    {"kl_div",
     [](GraphStep& s) {
       const bool logarithm = s.one_in(2);
       return pair_loss(
           s, [=](V x, V t, W w) { return kl_div(logsigmoid(x), sigmoid(t), logarithm, w); });
     }},
    {"poisson_nll_loss",
     [](GraphStep& s) {
       const bool logarithm = s.one_in(2);
       return pair_loss(s, [=](V x, V t, W w) {
         return poisson_nll_loss(sigmoid(x), abs(t), logarithm, 1e-8, w);
       });
     }},
    {"hinge_loss",
     [](GraphStep& s) {
       return pair_loss(s, [](V x, V t, W w) { return hinge_loss(x, tanh(t), 1, w); });
     }},
    {"soft_cross_entropy",
     [](GraphStep& s) {
       const Var x = s.x(3);
       return soft_cross_entropy(x, softmax(s.same(x), 1), {.label_smoothing = 0.1}, within(s));
     }},
    {"nll_loss", likelihood},
    {"cross_entropy", entropy},
    {"cross_entropy_elements", entropy_elements},
    {"ctc_loss",
     [](GraphStep& s) {
       return alignment(s, log_softmax(s.input({3, 3}, 1), -1));
     }},
    {"cosine_similarity",
     [](GraphStep& s) {
       const Var x = s.x(3);
       return cosine_similarity(x, s.same(x), static_cast<int>(s.draw(1, 2)));
     }},
    {"cosine_embedding_loss", embedded_cosine},
    {"triplet_margin_loss", triplet}};

constexpr const char* rows = "with a row for each sample, beside a value that all samples share";
constexpr const char* mixes = "combines samples";
const FuzzedOp refusals[] = {
    {"cross_entropy_elements",
     [](GraphStep& s) {
       return mean(cross_entropy_elements(s.shared_rows({3}), s.ids({}, 3).value()));
     },
     rows},
    {"nll_loss",
     [](GraphStep& s) {
       const Var x = s.shared_rows({3});
       return mean(nll_loss(x, s.ids({}, 3).value(), {}, Within::none));
     },
     rows},
    {"ctc_loss",
     [](GraphStep& s) {
       return mean(alignment(s, transpose(s.shared_rows({3, 3}), 0, 1)));
     },
     rows},
    {"recurrent", [](GraphStep& s) { return mean_of_lengths(s, 0); }, rows},
    {"recurrent_in_segments", [](GraphStep& s) { return mean_of_lengths(s, 2); }, rows},
    {"run_layers", mean_of_layers, rows},
    {"segment", mean_in_segment, rows},
    {"constant",
     [](GraphStep& s) { return s.tape().constant(full({}, 2), SampleAxis::shared(), true); },
     "the gradient of a value"},
    {"mean",
     [](GraphStep& s) {
       const Var x = s.x(2);
       return mean(x, {0});
     },
     mixes},
    {"softmax", [](GraphStep& s) { return softmax(s.x(2), 0); }, mixes},
    {"matmul",
     [](GraphStep& s) {
       const Var x = s.x(2);
       return matmul(transpose(x, 0, 1), x);
     },
     mixes}};

}  // namespace

std::span<const FuzzedOp> fuzzed_losses() { return losses; }

std::span<const FuzzedOp> fuzzed_refusals() { return refusals; }

}  // namespace sotto
