// Low-rank adaptation (Hu et al. 2022): a frozen layer plus a trained product of two thin matrices.
#pragma once

#include "nn/layers/conv_pool_layers.h"
#include "nn/layers/dense_layers.h"
#include "nn/layers/quantized_layers.h"

namespace sotto::nn {

// Options of low-rank adaptation (Hu et al. 2022).
struct LoraOptions {
  std::int64_t rank = 4;  // >= 1
  double alpha = 4;       // the product is scaled by alpha / rank
  // The product is scaled by alpha / sqrt(rank): rsLoRA (Kalajdzievski 2023).
  bool rank_stabilized = false;
  double dropout = 0;  // of the input of lora_a, drawn for each sample; tables have none

  // The factor of the product.
  double scale() const;
};

// An adapted layer of any kind: trained parameters "lora_a" [rank, in] and "lora_b" [out, rank]
// beside a frozen layer "base". lora_b starts at zero, so that the layer is unchanged at first.
class LoraLayer : public Module {
 public:
  // merge() adds the product to the frozen weight and calls then use the base layer alone;
  // unmerge() restores the weight, bit for bit. Each throws std::invalid_argument when called twice
  // in a row.
  void merge();
  void unmerge();
  bool merged() const { return merged_; }
  const LoraOptions& options() const { return options_; }
  // The frozen layer.
  virtual Module& base_layer() = 0;
  // Takes the base layer out, with the product added to its weight unless it was already.
  virtual std::unique_ptr<Module> take_merged() = 0;

  std::unique_ptr<Parameter> lora_a, lora_b;  // [rank, in], [out, rank]

 protected:
  // Throws std::invalid_argument unless rank >= 1 and 0 <= dropout < 1.
  explicit LoraLayer(const LoraOptions& options);
  // The weight that merge() changes.
  virtual Parameter& base_weight() = 0;
  // The scaled product in the shape of the base's weight.
  virtual Tensor product() const = 0;

 private:
  LoraOptions options_;
  Tensor unmerged_;  // the base's weight before merge()
  bool merged_ = false;
};

// The base of LoraLinear, LoraConv and LoraEmbedding.
template <class Layer>
class Lora : public LoraLayer {
 public:
  // Takes the layer and freezes it.
  explicit Lora(Layer layer, const LoraOptions& options = {});
  void visit(const Visitor& visitor) override;
  Module& base_layer() override { return base; }
  std::unique_ptr<Module> take_merged() override;

  Layer base;  // frozen

 protected:
  Parameter& base_weight() override { return *base.weight; }
  Tensor product() const override;
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

// LoraLinear around a weight that stays quantised. merge() is refused, since blocks take no
// product; take_merged() widens the weight and returns a Linear.
class LoraQuantizedLinear final : public LoraLayer {
 public:
  // Takes the layer and freezes its bias.
  explicit LoraQuantizedLinear(QuantizedLinear layer, const LoraOptions& options = {});
  Var forward(const Var& x) override;
  void visit(const Visitor& visitor) override;
  Module& base_layer() override { return base; }
  std::unique_ptr<Module> take_merged() override;

  QuantizedLinear base;  // frozen

 protected:
  Parameter& base_weight() override;
  Tensor product() const override;
};

extern template class Lora<Linear>;
extern template class Lora<Conv1d>;
extern template class Lora<Conv2d>;
extern template class Lora<Conv3d>;
extern template class Lora<Embedding>;
extern template class LoraConv<1>;
extern template class LoraConv<2>;
extern template class LoraConv<3>;

// The sizes of a layer's factors: lora_a is [rank, in], lora_b [out, rank].
struct LoraSizes {
  std::int64_t out = 0;  // outputs
  std::int64_t in = 0;   // inputs
};
// Those of a layer that with_lora() takes; nullopt for another module.
std::optional<LoraSizes> lora_sizes(const Module& layer);
// Returns an adapted layer in place of a Linear, quantised or not, a Conv or an Embedding. Throws
// std::invalid_argument, naming the kind, for another module.
std::unique_ptr<Module> with_lora(Module& layer, const LoraOptions& options);

}  // namespace sotto::nn
