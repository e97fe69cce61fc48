// Losses between a value and a target, element by element. Reductions happen within a sample only:
// averaging over samples is the engine's.
#pragma once

#include <optional>

#include "autograd/tape.h"

namespace sotto {

// The elements themselves, or their mean or sum within each sample, [n].
enum class Within { none, mean, sum };
Var reduce_within(const Var& elements, Within within);

Var squared_error(const Var& x, const Var& target, Within within = Within::mean);   // (x - t)^2
Var absolute_error(const Var& x, const Var& target, Within within = Within::mean);  // |x - t|
// d^2 / (2 beta) where d = |x - t| < beta, else d - beta / 2; beta 0 is the absolute error.
Var smooth_l1_loss(const Var& x, const Var& target, double beta = 1, Within within = Within::mean);
// d^2 / 2 where d <= delta, else delta (d - delta / 2) (Huber 1964).
Var huber_loss(const Var& x, const Var& target, double delta = 1, Within within = Within::mean);

// -(t log x + (1 - t) log(1 - x)) for probabilities x; logarithms are not below -100, as in the
// field.
Var binary_cross_entropy(const Var& x, const Var& target, Within within = Within::mean);
struct LogitsOptions {
  std::optional<Var> weight = {};      // of the elements; broadcasts
  std::optional<Var> pos_weight = {};  // of the positive term; broadcasts
};
// The same for logits: weight (-pos_weight t log s(x) - (1 - t) log(1 - s(x))), s the sigmoid.
Var binary_cross_entropy_with_logits(const Var& x, const Var& target,
                                     const LogitsOptions& options = {},
                                     Within within = Within::mean);
// t (log t - x) for log-probabilities x, 0 where t = 0; e^t (t - x) when the target is logarithmic,
// too.
Var kl_div(const Var& x, const Var& target, bool log_target = false, Within within = Within::mean);
// e^x - t x, x the logarithm of the rate; or x - t log(x + eps) of the rate itself.
Var poisson_nll_loss(const Var& x, const Var& target, bool log_input = true, double eps = 1e-8,
                     Within within = Within::mean);
// max(0, margin - x t) for targets of 1 and -1.
Var hinge_loss(const Var& x, const Var& target, double margin = 1, Within within = Within::mean);

// -sum_c w[c] p'[c] lp[c] over the classes along `axis`, with p' = (1 - s) p + s / C for the
// targets' probabilities p and lp = log_softmax(x).
struct SoftTargetOptions {
  int class_axis = 1;
  double label_smoothing = 0;
  Tensor class_weights = {};  // [C]; undefined for none
};
Var soft_cross_entropy(const Var& logits, const Var& probabilities,
                       const SoftTargetOptions& options = {}, Within within = Within::mean);
// -w[t] x[t] for log-probabilities x with the classes along axis 1, x [n, C, ...] and targets [n,
// ...], i64, i32 or u8; 0 where ignored. With Within::mean it is divided by the sum of w[t] in the
// sample.
struct NllOptions {
  std::optional<std::int64_t> ignore_index = {};
  Tensor class_weights = {};  // [C]; undefined for none
};
Var nll_loss(const Var& log_probabilities, const Tensor& targets, const NllOptions& options = {},
             Within within = Within::mean);

// a b / max(|a| |b|, eps) along an axis, which goes.
Var cosine_similarity(const Var& a, const Var& b, int axis = 1, double eps = 1e-8);
// 1 - cos for a target of 1, max(0, cos - margin) for -1; a and b [n, d], target [n].
Var cosine_embedding_loss(const Var& a, const Var& b, const Var& target, double margin = 0);
// max(0, |anchor - positive| - |anchor - negative| + margin) with the p-norm over the last axis;
// the three belong to one sample, [n, d].
Var triplet_margin_loss(const Var& anchor, const Var& positive, const Var& negative,
                        double margin = 1, double p = 2, double eps = 1e-6);

}  // namespace sotto
