// Layers with a frozen weight that stays quantised, as a file of blocks holds it. The blocks are no
// Parameter: optimizers, named_parameters() and checkpoints do not see them, and save_module()
// refuses a model that has some.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/block_matrix.h"
#include "nn/layers/dense_layers.h"

namespace sotto::nn {

// y[.., o] = sum_i x[.., i] weight[o, i] + bias[o], on the CPU.
class QuantizedLinear final : public Module {
 public:
  // Throws std::invalid_argument for blocks that do not fit their shape, and for a bias of another
  // shape than [o].
  explicit QuantizedLinear(BlockMatrix weight, const std::optional<Tensor>& bias = std::nullopt);
  Var forward(const Var& x) override;
  void visit(const Visitor& visitor) override;

  const BlockMatrix& blocks() const { return blocks_; }  // of shape [o, i]
  // An ordinary layer of the widened weight, f32, frozen; it takes 4 bytes a number.
  Linear to_linear() const;

  std::unique_ptr<Parameter> bias;  // [o], or null; frozen at first

 private:
  BlockMatrix blocks_;
};

// y[.., :] = weight[x[..], :] for ids x, i64 of any shape, on the CPU.
class QuantizedEmbedding final : public Module {
 public:
  explicit QuantizedEmbedding(BlockMatrix weight);
  Var forward(const Var& ids) override;
  // The table as a tied output layer: y[.., row] = sum_i x[.., i] weight[row, i].
  Var output(const Var& x) const;

  const BlockMatrix& blocks() const { return blocks_; }  // of shape [rows, features]
  // An ordinary layer of the widened table, f32, frozen; it takes 4 bytes a number.
  Embedding to_embedding() const;

 private:
  BlockMatrix blocks_;
};

// The weight of a quantised layer, with its path as a parameter would have it.
struct NamedBlocks {
  std::string name;           // "layers.0.mlp.up_proj.weight"
  const BlockMatrix* blocks;  // owned by the layer
};
// Those of a module and its children, in the order of visit(), each once.
std::vector<NamedBlocks> named_blocks(Module& module);

// Puts ordinary layers of the widened weights in the place of quantised ones. Throws
// std::invalid_argument, naming it and changing nothing, if the owner of one does not hold it by
// pointer.
void widen_blocks(Module& module);

}  // namespace sotto::nn
