// Losses as objects that hold their options: each returns one number for each sample, unless
// `within` is none. The formulas are those of autograd/ops/loss/element_losses.h, losses.h and
// ctc.h.
#pragma once

#include "autograd/ops/loss/ctc.h"
#include "autograd/ops/loss/element_losses.h"
#include "autograd/ops/loss/losses.h"

namespace sotto::nn {

struct CrossEntropyLoss {
  CrossEntropyOptions options = {};
  Var operator()(const Var& logits, const Tensor& targets) const {
    return cross_entropy(logits, targets, options);
  }
};

struct NllLoss {
  NllOptions options = {};
  Within within = Within::mean;
  Var operator()(const Var& log_probabilities, const Tensor& targets) const {
    return nll_loss(log_probabilities, targets, options, within);
  }
};

struct MseLoss {
  Within within = Within::mean;
  Var operator()(const Var& x, const Var& target) const { return squared_error(x, target, within); }
};

struct L1Loss {
  Within within = Within::mean;
  Var operator()(const Var& x, const Var& target) const {
    return absolute_error(x, target, within);
  }
};

struct SmoothL1Loss {
  double beta = 1;
  Within within = Within::mean;
  Var operator()(const Var& x, const Var& target) const {
    return smooth_l1_loss(x, target, beta, within);
  }
};

struct HuberLoss {
  double delta = 1;
  Within within = Within::mean;
  Var operator()(const Var& x, const Var& target) const {
    return huber_loss(x, target, delta, within);
  }
};

struct BceLoss {
  Within within = Within::mean;
  Var operator()(const Var& x, const Var& target) const {
    return binary_cross_entropy(x, target, within);
  }
};

struct BceWithLogitsLoss {
  LogitsOptions options = {};
  Within within = Within::mean;
  Var operator()(const Var& x, const Var& target) const {
    return binary_cross_entropy_with_logits(x, target, options, within);
  }
};

struct KlDivLoss {
  bool log_target = false;
  Within within = Within::mean;
  Var operator()(const Var& x, const Var& target) const {
    return kl_div(x, target, log_target, within);
  }
};

struct PoissonNllLoss {
  bool log_input = true;
  double eps = 1e-8;
  Within within = Within::mean;
  Var operator()(const Var& x, const Var& target) const {
    return poisson_nll_loss(x, target, log_input, eps, within);
  }
};

struct HingeLoss {
  double margin = 1;
  Within within = Within::mean;
  Var operator()(const Var& x, const Var& target) const {
    return hinge_loss(x, target, margin, within);
  }
};

struct CosineEmbeddingLoss {
  double margin = 0;
  Var operator()(const Var& a, const Var& b, const Var& target) const {
    return cosine_embedding_loss(a, b, target, margin);
  }
};

struct TripletMarginLoss {
  double margin = 1;
  double p = 2;
  double eps = 1e-6;
  Var operator()(const Var& anchor, const Var& positive, const Var& negative) const {
    return triplet_margin_loss(anchor, positive, negative, margin, p, eps);
  }
};

struct CtcLoss {
  CtcOptions options = {};
  Var operator()(const Var& log_probabilities, const Tensor& targets, const Tensor& input_lengths,
                 const Tensor& target_lengths) const {
    return ctc_loss(log_probabilities, targets, input_lengths, target_lengths, options);
  }
};

}  // namespace sotto::nn
