// Losses as objects that hold their options. operator()() returns one loss per sample, [n], or with
// Within::none one per element. The formulas are those of autograd/ops/loss/element_losses.h,
// losses.h and ctc.h.
#pragma once

#include "autograd/ops/loss/ctc.h"
#include "autograd/ops/loss/element_losses.h"
#include "autograd/ops/loss/losses.h"

namespace sotto::nn {

// cross_entropy(): -log softmax(logits)[target], with the label smoothing and z-loss of the
// options.
struct CrossEntropyLoss {
  CrossEntropyOptions options = {};  // of the function
  Var operator()(const Var& logits, const Tensor& targets) const {
    return cross_entropy(logits, targets, options);
  }
};

// nll_loss(): -w[target] log_probabilities[target], with the class weights w of the options.
struct NllLoss {
  NllOptions options = {};       // of the function
  Within within = Within::mean;  // over the elements of a sample
  Var operator()(const Var& log_probabilities, const Tensor& targets) const {
    return nll_loss(log_probabilities, targets, options, within);
  }
};

// squared_error(): (x - target)^2, reduced within each sample.
struct MseLoss {
  Within within = Within::mean;  // over the elements of a sample
  Var operator()(const Var& x, const Var& target) const { return squared_error(x, target, within); }
};

// absolute_error(): |x - target|, reduced within each sample.
struct L1Loss {
  Within within = Within::mean;  // over the elements of a sample
  Var operator()(const Var& x, const Var& target) const {
    return absolute_error(x, target, within);
  }
};

// smooth_l1_loss(): squared below beta, else absolute.
struct SmoothL1Loss {
  double beta = 1;               // where it turns from squared to absolute
  Within within = Within::mean;  // over the elements of a sample
  Var operator()(const Var& x, const Var& target) const {
    return smooth_l1_loss(x, target, beta, within);
  }
};

// huber_loss(): squared up to delta, else linear (Huber 1964).
struct HuberLoss {
  double delta = 1;              // where it turns from squared to absolute
  Within within = Within::mean;  // over the elements of a sample
  Var operator()(const Var& x, const Var& target) const {
    return huber_loss(x, target, delta, within);
  }
};

// binary_cross_entropy() of probabilities x and targets in [0, 1].
struct BceLoss {
  Within within = Within::mean;  // over the elements of a sample
  Var operator()(const Var& x, const Var& target) const {
    return binary_cross_entropy(x, target, within);
  }
};

// binary_cross_entropy_with_logits(): with weights for elements and for the positive term.
struct BceWithLogitsLoss {
  LogitsOptions options = {};    // of the function
  Within within = Within::mean;  // over the elements of a sample
  Var operator()(const Var& x, const Var& target) const {
    return binary_cross_entropy_with_logits(x, target, options, within);
  }
};

// kl_div(): target (log target - x) for log-probabilities x.
struct KlDivLoss {
  bool log_target = false;       // targets are logarithms
  Within within = Within::mean;  // over the elements of a sample
  Var operator()(const Var& x, const Var& target) const {
    return kl_div(x, target, log_target, within);
  }
};

// poisson_nll_loss(): e^x - target x, for counts with the rate e^x.
struct PoissonNllLoss {
  bool log_input = true;         // inputs are logarithms of rates
  double eps = 1e-8;             // added to denominators and logarithms
  Within within = Within::mean;  // over the elements of a sample
  Var operator()(const Var& x, const Var& target) const {
    return poisson_nll_loss(x, target, log_input, eps, within);
  }
};

// hinge_loss(): max(0, margin - x target) for targets of 1 and -1.
struct HingeLoss {
  double margin = 1;             // of the formula
  Within within = Within::mean;  // over the elements of a sample
  Var operator()(const Var& x, const Var& target) const {
    return hinge_loss(x, target, margin, within);
  }
};

// cosine_embedding_loss(): 1 - cos(a, b) if the target is 1, max(0, cos(a, b) - margin) if -1.
struct CosineEmbeddingLoss {
  double margin = 0;  // of the formula
  Var operator()(const Var& a, const Var& b, const Var& target) const {
    return cosine_embedding_loss(a, b, target, margin);
  }
};

// triplet_margin_loss(): max(0, |anchor - positive| - |anchor - negative| + margin).
struct TripletMarginLoss {
  double margin = 1;  // of the formula
  double p = 2;       // of the norm
  double eps = 1e-6;  // added to each difference
  Var operator()(const Var& anchor, const Var& positive, const Var& negative) const {
    return triplet_margin_loss(anchor, positive, negative, margin, p, eps);
  }
};

// ctc_loss(): for label sequences that are not aligned with the steps (Graves et al. 2006).
struct CtcLoss {
  CtcOptions options = {};  // of the function
  Var operator()(const Var& log_probabilities, const Tensor& targets, const Tensor& input_lengths,
                 const Tensor& target_lengths) const {
    return ctc_loss(log_probabilities, targets, input_lengths, target_lengths, options);
  }
};

}  // namespace sotto::nn
