#include "nn/layers/quantized_layers.h"

#include <algorithm>

#include "autograd/ops/quantized_products.h"
#include "kernels/quantized/quantized.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::nn {

namespace {

std::unique_ptr<Parameter> frozen(const Tensor& value) {
  auto parameter = std::make_unique<Parameter>(value);
  parameter->trainable = false;
  return parameter;
}

const BlockMatrix* blocks_of(const Module& module) {
  if (const auto* linear = dynamic_cast<const QuantizedLinear*>(&module)) return &linear->blocks();
  const auto* table = dynamic_cast<const QuantizedEmbedding*>(&module);
  return table ? &table->blocks() : nullptr;
}

// The ordinary layer for a quantised one, or null for another.
std::unique_ptr<Module> ordinary(const Module& module) {
  if (const auto* linear = dynamic_cast<const QuantizedLinear*>(&module))
    return std::make_unique<Linear>(linear->to_linear());
  const auto* table = dynamic_cast<const QuantizedEmbedding*>(&module);
  return table ? std::make_unique<Embedding>(table->to_embedding()) : nullptr;
}

void collect(const std::string& path, Module& module, std::vector<NamedBlocks>& all) {
  const BlockMatrix* const own = blocks_of(module);
  const auto same = [&](const NamedBlocks& one) { return one.blocks == own; };
  if (own && std::none_of(all.begin(), all.end(), same)) all.push_back({path + "weight", own});
  module.visit(Visitor(
      [](const std::string&, Parameter&) {},
      [&](const std::string& name, Module& child) { collect(path + name + ".", child, all); }));
}

// The children of a module that its owner holds by value.
void check_owned(const std::string& path, Module& module) {
  const auto inside = [&](const std::string& name, Module& child) {
    check_owned(path + name + ".", child);
  };
  module.visit(Visitor(
      [](const std::string&, Parameter&) {},
      [&](const std::string& name, Module& child) {
        check(!blocks_of(child), "widen_blocks: the owner of {}{} does not hold it by pointer",
              path, name);
        inside(name, child);
      },
      [&](const std::string& name, std::unique_ptr<Module>& child) { inside(name, *child); }));
}

void replace(Module& module) {
  module.visit(Visitor([](const std::string&, Parameter&) {},
                       [](const std::string&, Module& child) { replace(child); },
                       [](const std::string&, std::unique_ptr<Module>& child) {
                         if (auto other = ordinary(*child)) child = std::move(other);
                         replace(*child);
                       }));
}

}  // namespace

QuantizedLinear::QuantizedLinear(BlockMatrix weight, const std::optional<Tensor>& given)
    : blocks_(std::move(weight)) {
  check_blocks("QuantizedLinear", blocks_);
  check(!given || given->shape() == Shape{blocks_.rows()},
        "QuantizedLinear: bias {} does not fit blocks of shape {}",
        given ? given->shape() : Shape{}, blocks_.shape);
  if (given) bias = frozen(*given);
}

Var QuantizedLinear::forward(const Var& x) {
  return quantized_linear(x, blocks_, bias ? std::optional(x.tape().use(*bias)) : std::nullopt);
}

void QuantizedLinear::visit(const Visitor& visitor) { visitor("bias", bias); }

Linear QuantizedLinear::to_linear() const {
  Linear linear(1, 1, {.bias = false});
  linear.weight = frozen(dequantize(blocks_));
  if (bias) {
    linear.bias = frozen(clone(bias->value));
    linear.bias->trainable = bias->trainable;
  }
  return linear;
}

QuantizedEmbedding::QuantizedEmbedding(BlockMatrix weight) : blocks_(std::move(weight)) {
  check_blocks("QuantizedEmbedding", blocks_);
}

Var QuantizedEmbedding::forward(const Var& ids) { return quantized_embedding(blocks_, ids); }

Var QuantizedEmbedding::output(const Var& x) const { return quantized_linear(x, blocks_); }

Embedding QuantizedEmbedding::to_embedding() const {
  Embedding embedding(1, 1);
  embedding.weight = frozen(dequantize(blocks_));
  return embedding;
}

std::vector<NamedBlocks> named_blocks(Module& module) {
  std::vector<NamedBlocks> all;
  collect("", module, all);
  return all;
}

void widen_blocks(Module& module) {
  check_owned("", module);
  replace(module);
}

}  // namespace sotto::nn
