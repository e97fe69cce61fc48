#include "nn/models/model_blocks.h"

#include <limits>
#include <map>

#include "autograd/ops/elementwise.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/shape_ops.h"
#include "autograd/sample_axis_rules.h"
#include "autograd/trace.h"
#include "core/io/utf8.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "nn/layers/lora.h"
#include "nn/layers/quantized_layers.h"

namespace sotto::nn {

std::function<Var(Var)> activation_of(const std::string& name, const std::string& field) {
  // Quick_gelu's factor (Hendrycks and Gimpel 2016).
  constexpr double quick_factor = 1.702;
  static const std::map<std::string, std::function<Var(Var)>> known{
      {"gelu", [](Var x) { return gelu(std::move(x)); }},
      {"gelu_new", [](Var x) { return gelu_tanh(std::move(x)); }},
      {"gelu_pytorch_tanh", [](Var x) { return gelu_tanh(std::move(x)); }},
      {"gelu_accurate", [](Var x) { return gelu_tanh(std::move(x)); }},
      // Ten digits of sqrt(2 / pi): the difference is below the rounding of f32.
      {"gelu_fast", [](Var x) { return gelu_tanh(std::move(x)); }},
      {"quick_gelu", [](const Var& x) { return x * sigmoid(x * quick_factor); }},
      {"relu", [](Var x) { return relu(std::move(x)); }},
      {"relu2", [](Var x) { return square(relu(std::move(x))); }},
      {"relu6", [](Var x) { return relu6(std::move(x)); }},
      {"leaky_relu", [](Var x) { return leaky_relu(std::move(x)); }},
      {"silu", [](Var x) { return silu(std::move(x)); }},
      {"swish", [](Var x) { return silu(std::move(x)); }},
      {"sigmoid", [](Var x) { return sigmoid(std::move(x)); }},
      {"tanh", [](Var x) { return tanh(std::move(x)); }},
      {"mish", [](Var x) { return mish(std::move(x)); }},
      {"linear", [](Var x) { return x; }},
  };
  const auto at = known.find(name);
  check(at != known.end(), "config: {} = {} is not supported", field, excerpt(name));
  return at->second;
}

std::vector<Var> hidden_keys(const std::optional<Var>& attention_mask) {
  if (!attention_mask) return {};
  const Var& mask = *attention_mask;
  check(mask.rank() == 2 && mask.dtype() == Dtype::i64,
        "attention_mask: {} {} where i64 [n, t] is needed", name(mask.dtype()), mask.shape());
  std::vector<std::int64_t> hides = mask.value().to_vector<std::int64_t>();
  for (std::int64_t& value : hides) {
    check(value == 0 || value == 1, "attention_mask: {} is neither 1, a token, nor 0, padding",
          value);
    value = 1 - value;
  }
  const Tensor hidden = Tensor::from(hides, {mask.shape()[0], 1, 1, mask.shape()[1]});
  const Var y = untracked(mask.tape(), hidden.to(mask.value().device()), mask.samples());
  if (tracing()) explain_value("hidden_keys", {mask}, {}, y);
  return {y};
}

Var split_heads(const Var& x, std::int64_t heads) {
  const Shape& shape = x.shape();
  return permute(reshape(x, {shape[0], shape[1], heads, shape[2] / heads}), {0, 2, 1, 3});
}

Var merge_heads(const Var& x) {
  const Shape& shape = x.shape();
  return reshape(permute(x, {0, 2, 1, 3}), {shape[0], shape[2], shape[1] * shape[3]});
}

Var drop_path(Var branch, double rate) {
  if (rate == 0 || !branch.tape().options().training) return branch;
  Shape shape = Shape::filled(branch.rank(), 1);
  shape[0] = branch.shape()[0];
  const Tensor ones = full(shape, 1, branch.dtype(), branch.value().device());
  return branch * dropout(branch.tape().input(ones), rate);
}

std::unique_ptr<Module> linear_child(std::int64_t in, std::int64_t out, bool bias) {
  return std::make_unique<Linear>(in, out, LinearOptions{.bias = bias});
}

std::unique_ptr<Module> embedding_child(std::int64_t rows, std::int64_t features,
                                        std::optional<std::int64_t> padding) {
  return std::make_unique<Embedding>(rows, features, EmbeddingOptions{.padding = padding});
}

Var tied_output(Module& table, const Var& x) {
  if (auto* plain = dynamic_cast<Embedding*>(&table))
    return linear(x, x.tape().use(*plain->weight));
  if (auto* adapted = dynamic_cast<LoraEmbedding*>(&table))
    return linear(x, x.tape().use(*adapted->base.weight));
  if (auto* quantized = dynamic_cast<QuantizedEmbedding*>(&table)) return quantized->output(x);
  fail("tied output: the table of tokens was replaced by a module that is no table");
}

InitLater::InitLater() {
  if (!WithoutInit::lives()) guard_.emplace(std::numeric_limits<std::int64_t>::max(), "model");
}

void draw_initial(Module& model, const std::function<double(const std::string& name)>& deviation) {
  if (WithoutInit::lives()) return;
  for (const auto& [name, parameter] : model.named_parameters()) {
    const Shape shape = parameter->value.shape();
    if (shape.rank() >= 2) {
      parameter->value = random_normal(shape, 0, deviation(name));
    } else if (name.ends_with("bias")) {
      parameter->value = zeros(shape);
    }
  }
}

Var positions_of(const Var& ids) {
  const std::int64_t n = ids.shape()[0], t = ids.shape()[1];
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < n * t; ++i) values.push_back(i % t);
  const Var y = untracked(ids.tape(), Tensor::from(values, ids.shape()).to(ids.value().device()),
                          ids.samples());
  if (tracing()) explain_value("repeated", {}, {}, y);
  return y;
}

}  // namespace sotto::nn
