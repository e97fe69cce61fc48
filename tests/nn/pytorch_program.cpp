// Our half of pytorch_test.py: pytorch_program FOLDER reads, for each module, an input and
// PyTorch's weights, NAME.input and NAME.theirs, and writes our initial weights and the results of
// both, NAME.ours, NAME.ours_y and NAME.theirs_y, all as safetensors.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sotto/sotto.h>

using namespace sotto;
using namespace sotto::nn;

namespace {

using Cases = std::vector<std::pair<std::string, std::unique_ptr<Module>>>;

// A model of one's own: members are named as in PyTorch.
class Network final : public Module {
 public:
  Var forward(const Var& x) override { return out(tanh(hidden(x))); }
  void visit(const Visitor& visitor) override {
    visitor("hidden", hidden);
    visitor("out", out);
  }

  Linear hidden{6, 5}, out{5, 2};
};

Cases cases() {
  Cases made;
  const auto add = [&](const char* name, auto module) {
    made.emplace_back(name, std::make_unique<decltype(module)>(std::move(module)));
  };
  add("Linear", Linear(6, 4));
  add("Bilinear", Bilinear(6, 6, 4));
  add("Conv1d", Conv1d(4, 6, 3, {.stride = {2}, .padding = {1}, .groups = 2}));
  add("Conv2d", Conv2d(4, 6, Shape{3, 2}, {.dilation = {1, 2}}));
  add("Conv3d", Conv3d(2, 3, 2));
  add("ConvTranspose1d", ConvTranspose1d(4, 6, 3, {.groups = 2}));
  add("ConvTranspose2d",
      ConvTranspose2d(4, 6, 3, {.stride = {2}, .padding = {1}, .output_padding = {1}}));
  add("ConvTranspose3d", ConvTranspose3d(2, 3, 2));
  add("GroupNorm", GroupNorm(2, 4));
  add("LayerNorm", LayerNorm(6));
  add("InstanceNorm2d", InstanceNorm2d(4, {.affine = true}));
  add("RMSNorm", RMSNorm(6));
  add("PReLU", PRelu(4));
  add("Embedding", Embedding(10, 6, {.padding = 1}));
  add("EmbeddingBag", EmbeddingBag(10, 6));
  add("RNN", RNN(6, 5, {.num_layers = 2, .batch_first = true}));
  add("GRU", GRU(6, 5, {.num_layers = 2, .batch_first = true, .bidirectional = true}));
  add("LSTM", LSTM(6, 5, {.num_layers = 2, .batch_first = true, .bidirectional = true}));
  add("LSTM with projections", LSTM(6, 5, {.batch_first = true, .proj_size = 3}));
  add("RNNCell", RNNCell(6, 5));
  add("GRUCell", GRUCell(6, 5));
  add("LSTMCell", LSTMCell(6, 5));
  add("MultiheadAttention", MultiheadAttention(8, 2, {.add_bias_kv = true, .batch_first = true}));
  add("TransformerEncoderLayer",
      TransformerEncoderLayer(8, 2, {.dim_feedforward = 16, .batch_first = true}));
  add("TransformerDecoderLayer",
      TransformerDecoderLayer(8, 2, {.dim_feedforward = 16, .batch_first = true}));
  add("Sequential", Sequential{Conv2d(4, 3, 3), Tanh(), Flatten(), Linear(48, 2)});
  add("a module of one's own", Network());
  add("a fused batch norm", Sequential{Conv2d(4, 3, 3), Relu()});
  return made;
}

Tensor read(const std::string& path) { return load_safetensors(path).tensors.at("x"); }
void write(const std::string& path, const Tensor& y) {
  save_safetensors(path, {.tensors = {{"x", y}}});
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  manual_seed(1);
  for (const auto& [name, module] : cases()) {
    const std::string path = std::string(arguments[1]) + "/" + name;
    const Tensor x = read(path + ".input");
    save_module(path + ".ours", *module);
    write(path + ".ours_y", predict(*module, x));
    load_module(path + ".theirs", *module);
    write(path + ".theirs_y", predict(*module, x));
  }
}
