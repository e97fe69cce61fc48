// Low-rank adaptation (Hu et al. 2022): a frozen layer plus a trained product of two thin matrices.
#pragma once

#include "nn/layers/conv_pool_layers.h"
#include "nn/layers/dense_layers.h"

namespace sotto::nn {

// Options of low-rank adaptation (Hu et al. 2022).
struct LoraOptions {
  std::int64_t rank = 4;  // >= 1
  double alpha = 4;       // the product is scaled by alpha / rank
};

// The base of LoraLinear, LoraConv and LoraEmbedding: frozen parameters "base.weight" and
// "base.bias", trained "lora_a" [rank, in] and "lora_b" [out, rank]. lora_b starts at zero, so that
// the layer is unchanged at first.
template <class Layer>
class Lora : public Module {
 public:
  // Takes the layer and freezes it. Throws std::invalid_argument unless rank >= 1.
  explicit Lora(Layer layer, const LoraOptions& options = {});
  void visit(const Visitor& visitor) override;

  // merge() adds the product to the frozen weight and calls then use the base layer alone;
  // unmerge() subtracts it. Each throws std::invalid_argument when called twice in a row.
  void merge();
  void unmerge();
  bool merged() const { return merged_; }

  Layer base;                                 // frozen
  std::unique_ptr<Parameter> lora_a, lora_b;  // [rank, in], [out, rank]

 protected:
  // The factor of the product, alpha / rank.
  double scale() const { return scale_; }

 private:
  void add_product(double times);

  double scale_;
  bool merged_ = false;
};

// y = base(x) + scale (x a^T) b^T: two thin products, whose gradients stay factored.
class LoraLinear final : public Lora<Linear> {
 public:
  using Lora::Lora;
  Var forward(const Var& x) override;
};

// A convolution to `rank` channels with the base's kernel, then one of kernel size 1 to its
// outputs; with groups, every group uses lora_a.
template <int axes>
class LoraConv final : public Lora<Conv<axes>> {
 public:
  using Lora<Conv<axes>>::Lora;
  Var forward(const Var& x) override;
};
using LoraConv1d = LoraConv<1>;  // one spatial axis
using LoraConv2d = LoraConv<2>;  // two
using LoraConv3d = LoraConv<3>;  // three

// y = base(ids) + scale a[:, ids]^T b^T: the table is [rows, features], a [rank, rows], b
// [features, rank]. A padding row stays as it is.
class LoraEmbedding final : public Lora<Embedding> {
 public:
  using Lora::Lora;
  Var forward(const Var& ids) override;
};

extern template class Lora<Linear>;
extern template class Lora<Conv1d>;
extern template class Lora<Conv2d>;
extern template class Lora<Conv3d>;
extern template class Lora<Embedding>;
extern template class LoraConv<1>;
extern template class LoraConv<2>;
extern template class LoraConv<3>;

}  // namespace sotto::nn
