#include "nn/layers/lora.h"

#include "autograd/ops.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"

namespace sotto::nn {

namespace {

// The weight's sizes as a matrix [out, in]; an embedding stores its table transposed.
template <class Layer>
std::pair<std::int64_t, std::int64_t> sizes(const Layer& layer) {
  const Shape& shape = layer.weight->value.shape();
  if constexpr (std::is_same_v<Layer, Embedding>) return {shape[1], shape[0]};
  return {shape[0], shape.numel() / shape[0]};
}

}  // namespace

template <class Layer>
Lora<Layer>::Lora(Layer layer, const LoraOptions& options)
    : base(std::move(layer)), scale_(options.alpha / static_cast<double>(options.rank)) {
  check(options.rank >= 1, "Lora: rank {}", options.rank);
  base.freeze();
  const auto [out, in] = sizes(base);
  lora_a = std::make_unique<Parameter>(kaiming_uniform({options.rank, in}));
  lora_b = std::make_unique<Parameter>(zeros({out, options.rank}));
  if constexpr (std::is_same_v<Layer, Embedding>) {
    if (const auto row = base.padding()) copy_into(zeros({}), lora_a->value.select(1, *row));
  }
}

template <class Layer>
void Lora<Layer>::visit(const Visitor& visitor) {
  visitor("base", base);
  visitor("lora_a", lora_a);
  visitor("lora_b", lora_b);
}

template <class Layer>
void Lora<Layer>::add_product(double times) {
  Tensor product = gemm(lora_b->value, lora_a->value);
  if constexpr (std::is_same_v<Layer, Embedding>) product = contiguous(product.transpose(0, 1));
  const Tensor& weight = base.weight->value;
  base.weight->value = add(weight, sotto::scale(reshape(product, weight.shape()), times * scale_));
}

template <class Layer>
void Lora<Layer>::merge() {
  check(!merged_, "Lora: merge: already merged");
  add_product(1);
  merged_ = true;
}

template <class Layer>
void Lora<Layer>::unmerge() {
  check(merged_, "Lora: unmerge: not merged");
  add_product(-1);
  merged_ = false;
}

Var LoraLinear::forward(const Var& x) {
  if (merged()) return base(x);
  Tape& tape = x.tape();
  return base(x) + affine(linear(linear(x, tape.use(*lora_a)), tape.use(*lora_b)), scale(), 0);
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
  const Var each = concat(std::vector<Var>(static_cast<std::size_t>(groups), a), 0);
  const Var thin = conv(x, each, std::nullopt, this->base.options());
  const Var wide =
      conv(thin, reshape(tape.use(*this->lora_b), one), std::nullopt, {.groups = groups});
  return this->base(x) + affine(wide, this->scale(), 0);
}

Var LoraEmbedding::forward(const Var& ids) {
  if (merged()) return base(ids);
  Tape& tape = ids.tape();
  const Var thin = embedding(transpose(tape.use(*lora_a), 0, 1), ids, base.padding());
  return base(ids) + affine(linear(thin, tape.use(*lora_b)), scale(), 0);
}

template class Lora<Linear>;
template class Lora<Conv1d>;
template class Lora<Conv2d>;
template class Lora<Conv3d>;
template class Lora<Embedding>;
template class LoraConv<1>;
template class LoraConv<2>;
template class LoraConv<3>;

}  // namespace sotto::nn
