// Elementwise losses between a value and a target. Reductions stay within a sample; the engine
// averages over samples.
#pragma once

#include <optional>

#include "autograd/tape.h"

namespace sotto {

// The reduction within each sample: none, or the mean or sum, [n].
enum class Within { none, mean, sum };
// Reduces the elements [n, ...] of each sample.
Var reduce_within(const Var& elements, Within within);

Var squared_error(const Var& x, const Var& target, Within within = Within::mean);   // (x - t)^2
Var absolute_error(const Var& x, const Var& target, Within within = Within::mean);  // |x - t|
// d^2 / (2 beta) where d = |x - t| < beta, else d - beta / 2; beta 0 is the absolute error.
Var smooth_l1_loss(const Var& x, const Var& target, double beta = 1, Within within = Within::mean);
// d^2 / 2 where d <= delta, else delta (d - delta / 2) (Huber 1964).
Var huber_loss(const Var& x, const Var& target, double delta = 1, Within within = Within::mean);

// -(t log x + (1 - t) log(1 - x)) for probabilities x; logarithms are limited to at least -100.
Var binary_cross_entropy(const Var& x, const Var& target, Within within = Within::mean);
struct LogitsOptions {
  std::optional<Var> weight = {};      // per element; broadcasts
  std::optional<Var> pos_weight = {};  // of the positive term; broadcasts
};
// Binary cross entropy for logits x, with s the sigmoid: weight (-pos_weight t log s(x) - (1 - t)
// log(1 - s(x))).
Var binary_cross_entropy_with_logits(const Var& x, const Var& target,
                                     const LogitsOptions& options = {},
                                     Within within = Within::mean);
// t (log t - x) for log-probabilities x, 0 where t = 0. With `log_target` the target is a
// logarithm, too: e^t (t - x).
Var kl_div(const Var& x, const Var& target, bool log_target = false, Within within = Within::mean);
// e^x - t x if x is the logarithm of the rate; else x - t log(x + eps).
Var poisson_nll_loss(const Var& x, const Var& target, bool log_input = true, double eps = 1e-8,
                     Within within = Within::mean);
// max(0, margin - x t) for targets of 1 and -1.
Var hinge_loss(const Var& x, const Var& target, double margin = 1, Within within = Within::mean);

// -sum_c w[c] p'[c] lp[c] over the classes along `class_axis`, with p' = (1 - s) p + s / C for
// target probabilities p and label smoothing s, and lp = log_softmax(x).
struct SoftTargetOptions {
  int class_axis = 1;          // axis of the classes
  double label_smoothing = 0;  // s, in [0, 1]
  Tensor class_weights = {};   // [C]; undefined for none
};
// The losses [n], or one for each position with Within::none.
Var soft_cross_entropy(const Var& logits, const Var& probabilities,
                       const SoftTargetOptions& options = {}, Within within = Within::mean);
// -w[t] x[t] for log-probabilities x [n, C, ...] and targets t [n, ...] in i64, i32 or u8; 0 for
// ignored targets. Within::mean divides by the sum of w[t] in the sample. Throws on a
// private tape for a shared x (Tape::check_plain_rows).
struct NllOptions {
  std::optional<std::int64_t> ignore_index = {};  // targets to leave out
  Tensor class_weights = {};                      // [C]; undefined for none
};
// The losses [n], or one for each position with Within::none.
Var nll_loss(const Var& log_probabilities, const Tensor& targets, const NllOptions& options = {},
             Within within = Within::mean);

// a b / max(|a| |b|, eps) along an axis, which is dropped.
Var cosine_similarity(const Var& a, const Var& b, int axis = 1, double eps = 1e-8);
// 1 - cos for a target of 1, max(0, cos - margin) for -1; a and b [n, d], target [n].
Var cosine_embedding_loss(const Var& a, const Var& b, const Var& target, double margin = 0);
// max(0, |anchor - positive| - |anchor - negative| + margin) with the p-norm over the last axis;
// each sample has all three, [n, d].
Var triplet_margin_loss(const Var& anchor, const Var& positive, const Var& negative,
                        double margin = 1, double p = 2, double eps = 1e-6);

}  // namespace sotto
