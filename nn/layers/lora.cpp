#include "nn/layers/lora.h"

#include <cmath>

#include "autograd/ops.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "nn/model_summary.h"

namespace sotto::nn {

namespace {

// The weight's sizes as a matrix [out, in]; an embedding stores its table transposed.
template <class Layer>
LoraSizes sizes(const Layer& layer) {
  const Shape& shape = layer.weight->value.shape();
  if constexpr (std::is_same_v<Layer, Embedding>) return {shape[1], shape[0]};
  return {shape[0], shape.numel() / shape[0]};
}

LoraSizes sizes(const QuantizedLinear& layer) {
  return {layer.blocks().rows(), layer.blocks().columns()};
}

// An initial value beside a weight: on its device, in its type or, if that is narrow, in f32.
std::unique_ptr<Parameter> beside(const Tensor& weight, const Tensor& initial) {
  return std::make_unique<Parameter>(
      to_dtype(initial, arithmetic_type(weight.dtype())).to(weight.device()));
}

// x a^T b^T, scaled between the thin products, where it costs least.
Var thin_products(const Var& thin, const LoraLayer& layer) {
  return linear(affine(thin, layer.options().scale(), 0), thin.tape().use(*layer.lora_b));
}

// That of a linear layer's input.
Var linear_products(const Var& x, const LoraLayer& layer) {
  const Var thin = linear(dropout(x, layer.options().dropout), x.tape().use(*layer.lora_a));
  return thin_products(thin, layer);
}

// The scaled product as a matrix [out, in].
Tensor product_of(const LoraLayer& layer) {
  return sotto::scale(gemm(layer.lora_b->value, layer.lora_a->value), layer.options().scale());
}

}  // namespace

double LoraOptions::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rank_stabilized ? std::sqrt(r) : r);
}

LoraLayer::LoraLayer(const LoraOptions& options) : options_(options) {
  check(options.rank >= 1, "Lora: rank {}", options.rank);
  check(options.dropout >= 0 && options.dropout < 1, "Lora: dropout {} outside [0, 1)",
        options.dropout);
}

void LoraLayer::merge() {
  check(!merged_, "Lora: merge: already merged");
  Parameter& weight = base_weight();
  unmerged_ = weight.value;
  weight.value = to_dtype(add(weight.value, product()), unmerged_.dtype());
  merged_ = true;
}

void LoraLayer::unmerge() {
  check(merged_, "Lora: unmerge: not merged");
  Tensor& weight = base_weight().value;
  weight = to_dtype(unmerged_, weight.dtype()).to(weight.device());
  unmerged_ = Tensor();
  merged_ = false;
}

template <class Layer>
Lora<Layer>::Lora(Layer layer, const LoraOptions& options)
    : LoraLayer(options), base(std::move(layer)) {
  base.freeze();
  const auto [out, in] = sizes(base);
  Tensor a = kaiming_uniform({options.rank, in});
  if constexpr (std::is_same_v<Layer, Embedding>) {
    if (const auto row = base.padding()) copy_into(zeros({}), a.select(1, *row));
  }
  lora_a = beside(base.weight->value, a);
  lora_b = beside(base.weight->value, zeros({out, options.rank}));
}

template <class Layer>
void Lora<Layer>::visit(const Visitor& visitor) {
  visitor("base", base);
  visitor("lora_a", lora_a);
  visitor("lora_b", lora_b);
}

template <class Layer>
std::unique_ptr<Module> Lora<Layer>::take_merged() {
  if (!merged()) merge();
  return std::make_unique<Layer>(std::move(base));
}

template <class Layer>
Tensor Lora<Layer>::product() const {
  Tensor product = product_of(*this);
  if constexpr (std::is_same_v<Layer, Embedding>) product = contiguous(product.transpose(0, 1));
  return reshape(product, base.weight->value.shape());
}

Var LoraLinear::forward(const Var& x) {
  if (merged()) return base(x);
  return base(x) + linear_products(x, *this);
}

template <int axes>
Var LoraConv<axes>::forward(const Var& x) {
  if (this->merged()) return this->base(x);
  Tape& tape = x.tape();
  const std::int64_t groups = this->base.options().groups;
  Shape kernel = this->base.weight->value.shape(), one = Shape::filled(axes + 2, 1);
  one[0] = kernel[0];
  one[1] = kernel[0] = this->lora_a->value.size(0);
  const Var a = reshape(tape.use(*this->lora_a), kernel);
  const Var each =
      groups == 1 ? a : concat(std::vector<Var>(static_cast<std::size_t>(groups), a), 0);
  const Var thin =
      conv(dropout(x, this->options().dropout), each, std::nullopt, this->base.options());
  const Var wide = conv(affine(thin, this->options().scale(), 0),
                        reshape(tape.use(*this->lora_b), one), std::nullopt, {.groups = groups});
  return this->base(x) + wide;
}

Var LoraEmbedding::forward(const Var& ids) {
  if (merged()) return base(ids);
  const Var thin = embedding(transpose(ids.tape().use(*lora_a), 0, 1), ids, base.padding());
  return base(ids) + thin_products(thin, *this);
}

LoraQuantizedLinear::LoraQuantizedLinear(QuantizedLinear layer, const LoraOptions& options)
    : LoraLayer(options), base(std::move(layer)) {
  base.freeze();
  const auto [out, in] = sizes(base);
  lora_a = std::make_unique<Parameter>(kaiming_uniform({options.rank, in}));
  lora_b = std::make_unique<Parameter>(zeros({out, options.rank}));
}

Var LoraQuantizedLinear::forward(const Var& x) { return base(x) + linear_products(x, *this); }

void LoraQuantizedLinear::visit(const Visitor& visitor) {
  visitor("base", base);
  visitor("lora_a", lora_a);
  visitor("lora_b", lora_b);
}

std::unique_ptr<Module> LoraQuantizedLinear::take_merged() {
  auto merged = std::make_unique<Linear>(base.to_linear());
  merged->weight->value = add(merged->weight->value, to_dtype(product(), Dtype::f32));
  return merged;
}

Parameter& LoraQuantizedLinear::base_weight() {
  fail(
      fmt::format("Lora: merge: the base is quantised ({}) and takes no product; take_merged() "
                  "widens it",
                  name(base.blocks().format)));
}

Tensor LoraQuantizedLinear::product() const { return product_of(*this); }

template class Lora<Linear>;
template class Lora<Conv1d>;
template class Lora<Conv2d>;
template class Lora<Conv3d>;
template class Lora<Embedding>;
template class LoraConv<1>;
template class LoraConv<2>;
template class LoraConv<3>;

namespace {

// The adapted layer if `layer` is a Layer, else null.
template <class Layer, class Adapted>
std::unique_ptr<Module> adapted(Module& layer, const LoraOptions& options) {
  auto* plain = dynamic_cast<Layer*>(&layer);
  if (!plain) return nullptr;
  return std::make_unique<Adapted>(std::move(*plain), options);
}

// Those of the Layer that `layer` is, if it is any of them.
template <class... Layer>
std::optional<LoraSizes> sizes_of_any(const Module& layer) {
  std::optional<LoraSizes> found;
  const auto look = [&]<class One>(const One* one) {
    if (one) found = sizes(*one);
  };
  (look(dynamic_cast<const Layer*>(&layer)), ...);
  return found;
}

}  // namespace

std::optional<LoraSizes> lora_sizes(const Module& layer) {
  return sizes_of_any<Linear, QuantizedLinear, Conv1d, Conv2d, Conv3d, Embedding>(layer);
}

std::unique_ptr<Module> with_lora(Module& layer, const LoraOptions& options) {
  for (const auto make :
       {adapted<Linear, LoraLinear>, adapted<QuantizedLinear, LoraQuantizedLinear>,
        adapted<Conv1d, LoraConv1d>, adapted<Conv2d, LoraConv2d>, adapted<Conv3d, LoraConv3d>,
        adapted<Embedding, LoraEmbedding>}) {
    if (auto made = make(layer, options)) return made;
  }
  fail(fmt::format("Lora: a {} is not adapted: only linear layers, convolutions and embeddings are",
                   kind_of(layer)));
}

}  // namespace sotto::nn
