#include "nn/models/quantize_layers.h"

#include "nn/layers/quantized_layers.h"

namespace sotto::nn {

namespace {

constexpr std::string_view ending = ".weight";

// The quantised layer for a linear layer or a table; null for another module.
std::unique_ptr<Module> quantized_in_place_of(Module& module, const std::string& weight,
                                              const BlockMatrix& blocks) {
  const auto check_shape = [&](const Parameter& parameter) {
    check(parameter.value.shape() == blocks.shape, "weights: {} is {} where the model needs {}",
          weight, blocks.shape, parameter.value.shape());
  };
  if (auto* linear = dynamic_cast<Linear*>(&module)) {
    check_shape(*linear->weight);
    const auto bias = linear->bias ? std::optional(linear->bias->value) : std::nullopt;
    return std::make_unique<QuantizedLinear>(blocks, bias);
  }
  if (auto* table = dynamic_cast<Embedding*>(&module)) {
    check_shape(*table->weight);
    return std::make_unique<QuantizedEmbedding>(blocks);
  }
  return nullptr;
}

bool replace_at(Module& owner, const std::string& path, const std::string& weight,
                const BlockMatrix& blocks) {
  bool replaced = false;
  const auto inside = [&](const std::string& name) {
    return weight.starts_with(path + name + ".");
  };
  owner.visit(Visitor([](const std::string&, Parameter&) {},
                      [&](const std::string& name, Module& child) {
                        if (inside(name))
                          replaced |= replace_at(child, path + name + ".", weight, blocks);
                      },
                      [&](const std::string& name, std::unique_ptr<Module>& child) {
                        if (path + name + std::string(ending) != weight) {
                          if (inside(name))
                            replaced |= replace_at(*child, path + name + ".", weight, blocks);
                          return;
                        }
                        std::unique_ptr<Module> quantized =
                            quantized_in_place_of(*child, weight, blocks);
                        if (!quantized) return;
                        child = std::move(quantized);
                        replaced = true;
                      }));
  return replaced;
}

}  // namespace

bool replace_by_quantized(Module& model, const std::string& weight, const BlockMatrix& blocks) {
  return replace_at(model, "", weight, blocks);
}

}  // namespace sotto::nn
