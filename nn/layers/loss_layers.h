// Losses as objects that hold their options: each returns one number for each sample, unless
// `within` is none. The formulas are those of autograd/ops/loss/element_losses.h, losses.h and
// ctc.h.
#pragma once

#include "autograd/ops/loss/ctc.h"
#include "autograd/ops/loss/element_losses.h"
#include "autograd/ops/loss/losses.h"

namespace sotto::nn {

// cross_entropy() with its options.
struct CrossEntropyLoss {
  CrossEntropyOptions options = {};  // of the function
  // Losses [n].
  Var operator()(const Var& logits, const Tensor& targets) const {
    return cross_entropy(logits, targets, options);
  }
};

// nll_loss() with its options.
struct NllLoss {
  NllOptions options = {};       // of the function
  Within within = Within::mean;  // over the elements of a sample
  // Losses [n]; with Within::none one for each element.
  Var operator()(const Var& log_probabilities, const Tensor& targets) const {
    return nll_loss(log_probabilities, targets, options, within);
  }
};

// squared_error() with its options.
struct MseLoss {
  Within within = Within::mean;  // over the elements of a sample
  // Losses [n]; with Within::none one for each element.
  Var operator()(const Var& x, const Var& target) const { return squared_error(x, target, within); }
};

// absolute_error() with its options.
struct L1Loss {
  Within within = Within::mean;  // over the elements of a sample
  // Losses [n]; with Within::none one for each element.
  Var operator()(const Var& x, const Var& target) const {
    return absolute_error(x, target, within);
  }
};

// smooth_l1_loss() with its options.
struct SmoothL1Loss {
  double beta = 1;               // where it turns from squared to absolute
  Within within = Within::mean;  // over the elements of a sample
  // Losses [n]; with Within::none one for each element.
  Var operator()(const Var& x, const Var& target) const {
    return smooth_l1_loss(x, target, beta, within);
  }
};

// huber_loss() with its options.
struct HuberLoss {
  double delta = 1;              // where it turns from squared to absolute
  Within within = Within::mean;  // over the elements of a sample
  // Losses [n]; with Within::none one for each element.
  Var operator()(const Var& x, const Var& target) const {
    return huber_loss(x, target, delta, within);
  }
};

// binary_cross_entropy() with its options.
struct BceLoss {
  Within within = Within::mean;  // over the elements of a sample
  // Losses [n]; with Within::none one for each element.
  Var operator()(const Var& x, const Var& target) const {
    return binary_cross_entropy(x, target, within);
  }
};

// binary_cross_entropy_with_logits() with its options.
struct BceWithLogitsLoss {
  LogitsOptions options = {};    // of the function
  Within within = Within::mean;  // over the elements of a sample
  // Losses [n]; with Within::none one for each element.
  Var operator()(const Var& x, const Var& target) const {
    return binary_cross_entropy_with_logits(x, target, options, within);
  }
};

// kl_div() with its options.
struct KlDivLoss {
  bool log_target = false;       // targets are logarithms
  Within within = Within::mean;  // over the elements of a sample
  // Losses [n]; with Within::none one for each element.
  Var operator()(const Var& x, const Var& target) const {
    return kl_div(x, target, log_target, within);
  }
};

// poisson_nll_loss() with its options.
struct PoissonNllLoss {
  bool log_input = true;         // inputs are logarithms of rates
  double eps = 1e-8;             // added to denominators and logarithms
  Within within = Within::mean;  // over the elements of a sample
  // Losses [n]; with Within::none one for each element.
  Var operator()(const Var& x, const Var& target) const {
    return poisson_nll_loss(x, target, log_input, eps, within);
  }
};

// hinge_loss() with its options.
struct HingeLoss {
  double margin = 1;             // of the formula
  Within within = Within::mean;  // over the elements of a sample
  // Losses [n]; with Within::none one for each element.
  Var operator()(const Var& x, const Var& target) const {
    return hinge_loss(x, target, margin, within);
  }
};

// cosine_embedding_loss() with its options.
struct CosineEmbeddingLoss {
  double margin = 0;  // of the formula
  // Losses [n].
  Var operator()(const Var& a, const Var& b, const Var& target) const {
    return cosine_embedding_loss(a, b, target, margin);
  }
};

// triplet_margin_loss() with its options.
struct TripletMarginLoss {
  double margin = 1;  // of the formula
  double p = 2;       // of the norm
  double eps = 1e-6;  // added to each difference
  // Losses [n].
  Var operator()(const Var& anchor, const Var& positive, const Var& negative) const {
    return triplet_margin_loss(anchor, positive, negative, margin, p, eps);
  }
};

// ctc_loss() with its options.
struct CtcLoss {
  CtcOptions options = {};  // of the function
  // Losses [n].
  Var operator()(const Var& log_probabilities, const Tensor& targets, const Tensor& input_lengths,
                 const Tensor& target_lengths) const {
    return ctc_loss(log_probabilities, targets, input_lengths, target_lengths, options);
  }
};

}  // namespace sotto::nn
