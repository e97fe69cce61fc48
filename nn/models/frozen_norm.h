// Batch normalisation of models that come trained: by the statistics of their file, which are
// constants. It is an affine map then, and trains privately. The library has none that reads the
// batch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/layers/conv_pool_layers.h"
#include "nn/models/pretrained.h"
#include "nn/models/statistics.h"

namespace sotto::nn {

// (x - running_mean) / sqrt(running_var + eps) weight + bias for each channel, axis 1 of
// x [n, c, ...]: batch normalisation in evaluation mode. Initially the identity, up to eps.
class FrozenBatchNorm final : public Module, public HoldsStatistics {
 public:
  // Throws std::invalid_argument unless channels >= 1.
  explicit FrozenBatchNorm(std::int64_t channels, double eps = 1e-5);
  Var forward(const Var& x) override;
  void visit(const Visitor& visitor) override;
  void visit_statistics(
      const std::function<void(const std::string& name, Tensor& value)>& f) override;
  double eps() const { return eps_; }

  std::unique_ptr<Parameter> weight, bias;  // [c]
  Tensor running_mean, running_var;         // [c], constants

 private:
  double eps_;  // added to the variance
};

// Replaces every FrozenBatchNorm of a model. Folding multiplies the weights of the convolution that
// the norm's owner shows before it. `groups` is that of group normalisation, 0 for 32: of the
// channels, the largest divisor that is no greater. Make optimizers afterwards. Throws
// std::invalid_argument for a norm to be folded that follows no Conv2d of as many outputs, and for
// a negative variance.
void convert_batch_norms(Module& model, StoredNorms to, std::int64_t groups = 0);

// While it lives, folded batch norms of the model stand there again, for files in the layout of the
// original: of statistics 0 and 1, with the convolution's bias as theirs. The convolutions keep
// their folded weights.
class UnfoldedBatchNorms {
 public:
  explicit UnfoldedBatchNorms(Module& model);
  ~UnfoldedBatchNorms();
  UnfoldedBatchNorms(const UnfoldedBatchNorms&) = delete;
  UnfoldedBatchNorms& operator=(const UnfoldedBatchNorms&) = delete;

 private:
  struct Place {
    std::unique_ptr<Module>* norm;
    std::unique_ptr<Module> folded;
    Conv2d* conv;
  };
  std::vector<Place> places_;
};

}  // namespace sotto::nn
