#include "tests/support/onnx_cases.h"

#include "autograd/ops/shape_ops.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "tests/support/op_cases.h"

namespace sotto::testing {

namespace {

using namespace nn;

// Collects cases with random inputs.
class Cases {
 public:
  template <class M>
  void add(const char* layer, M module, const Shape& shape, double low = -2, double high = 2) {
    Shape batch = shape;
    batch.insert(0, 3);
    made.push_back({layer, std::make_unique<M>(std::move(module)),
                    to_dtype(uniform_values(random_, batch, low, high), Dtype::f32)});
  }
  template <class M>
  void add_ids(const char* layer, M module, const Shape& shape, std::int64_t below) {
    Shape batch = shape;
    batch.insert(0, 3);
    made.push_back(
        {layer, std::make_unique<M>(std::move(module)), random_ids(random_, batch, below)});
  }

  std::vector<OnnxCase> made;

 private:
  PublicRandom random_{11};
};

void add_dense(Cases& all) {
  all.add("Linear", Linear(6, 4), {6});
  all.add("Linear", Linear(6, 4), {5, 6});
  all.add_ids("Embedding", Embedding(10, 6), {5}, 10);
  all.add("Flatten", Flatten(), {2, 3, 4});
  all.add("Dropout", Dropout(0.5), {4});
  all.add("Bilinear", Bilinear(3, 3, 2), {3});
  all.add_ids("EmbeddingBag", EmbeddingBag(10, 6), {5}, 10);
  all.add("LoraLinear", LoraLinear(Linear(4, 3), {.rank = 2}), {2, 4});
  all.add("LoraConv", LoraConv1d(Conv1d(4, 6, 3, {.groups = 2}), {.rank = 2}), {4, 6});
  all.add_ids("LoraEmbedding", LoraEmbedding(Embedding(10, 6), {.rank = 2}), {5}, 10);
}

void add_images(Cases& all) {
  all.add("Conv", Conv1d(4, 6, 3, {.stride = {2}, .padding = {1}, .groups = 2}), {4, 9});
  all.add("Conv", Conv2d(4, 6, Shape{3, 2}, {.dilation = {1, 2}}), {4, 6, 6});
  all.add("Conv", Conv2d(4, 4, Shape{4, 3}, {.groups = 4, .same = true}), {4, 6, 6});
  all.add("Conv", Conv2d(2, 3, 3, {.padding = {2}, .mode = PadMode::reflect}), {2, 5, 4});
  all.add("Conv", Conv3d(2, 3, 2, {}, false), {2, 4, 4, 4});
  all.add("ConvTranspose", ConvTranspose1d(4, 6, 3, {.groups = 2}), {4, 9});
  all.add("ConvTranspose",
          ConvTranspose2d(4, 6, 3, {.stride = {2}, .padding = {1}, .output_padding = {1}}),
          {4, 6, 6});
  all.add("MaxPool", MaxPool1d(2), {2, 7});
  all.add("MaxPool", MaxPool2d({.kernel = {3}, .stride = {2}, .padding = {1}}), {2, 6, 5});
  all.add("MaxPool", MaxPool2d({.kernel = {3}, .stride = {2}, .ceil_mode = true}), {2, 6, 8});
  all.add("AvgPool", AvgPool1d(2), {2, 7});
  all.add("AvgPool", AvgPool2d({.kernel = {3}, .stride = {2}, .padding = {1}}), {2, 6, 5});
  all.add("AvgPool", AvgPool2d({.kernel = {3}, .stride = {2}, .padding = {1}, .ceil_mode = true}),
          {2, 6, 7});
  all.add("AvgPool", AvgPool3d({.kernel = {2}, .padding = {1}, .count_padding = false}),
          {2, 4, 5, 3});
  all.add("AdaptiveAvgPool", AdaptiveAvgPool2d(Shape{2, 3}), {2, 5, 4});
  all.add("AdaptiveMaxPool", AdaptiveMaxPool({2, 3}), {2, 5, 4});
  all.add("LpPool", LpPool(2, {.kernel = {2}}), {2, 4, 4}, 0.5, 2);
  all.add("Upsample", Upsample({5, 7}), {2, 3, 4});
  all.add("Upsample", Upsample({5, 7}, {.mode = Interpolation::linear}), {2, 3, 4});
  all.add("PixelShuffle", PixelShuffle(2), {8, 2, 3});
  all.add("PixelUnshuffle", PixelUnshuffle(2), {2, 4, 2});
}

void add_norms(Cases& all) {
  all.add("GroupNorm", GroupNorm(2, 4), {4, 6, 5});
  all.add("GroupNorm", GroupNorm(1, 4, {.affine = false}), {4, 6});
  all.add("InstanceNorm", InstanceNorm2d(4, {.affine = true}), {4, 6, 6});
  all.add("LayerNorm", LayerNorm(6), {5, 6});
  all.add("LayerNorm", LayerNorm({5, 6}, {.affine = false}), {5, 6});
  all.add("RMSNorm", RMSNorm(6), {5, 6});
  all.add("Standardize", Standardize(3), {3});
  all.add("LocalResponseNorm", LocalResponseNorm(3), {5, 4});
}

void add_activations(Cases& all) {
  all.add("Relu", Relu(), {4});
  all.add("Relu6", Relu6(), {4}, -8, 8);
  all.add("Selu", Selu(), {4});
  all.add("Gelu", Gelu(), {4});
  all.add("GeluTanh", GeluTanh(), {4});
  all.add("Sigmoid", Sigmoid(), {4});
  all.add("Silu", Silu(), {4});
  all.add("Tanh", Tanh(), {4});
  all.add("Mish", Mish(), {4});
  all.add("LogSigmoid", LogSigmoid(), {4});
  all.add("Softsign", Softsign(), {4});
  all.add("Hardswish", Hardswish(), {4}, -4, 4);
  all.add("Hardsigmoid", Hardsigmoid(), {4}, -4, 4);
  all.add("Tanhshrink", Tanhshrink(), {4});
  all.add("LeakyRelu", LeakyRelu(0.2), {4});
  all.add("Elu", Elu(0.7), {4});
  all.add("Celu", Celu(0.6), {4});
  all.add("Softplus", Softplus(2, 1), {4});
  all.add("Hardtanh", Hardtanh(), {4});
  all.add("Hardshrink", Hardshrink(0.3), {4});
  all.add("Softshrink", Softshrink(0.3), {4});
  all.add("Threshold", Threshold(0.2, -1), {4});
  all.add("TemperedSigmoid", TemperedSigmoid(1.5, 3, 0.5), {4});
  all.add("PRelu", PRelu(3), {3, 4});
  all.add("Softmax", Softmax(1), {3, 4});
  all.add("LogSoftmax", LogSoftmax(), {3, 4});
  for (const PadMode mode :
       {PadMode::zeros, PadMode::reflect, PadMode::replicate, PadMode::circular})
    all.add("Pad", Pad({1, 2, 0, 1}, mode), {2, 3, 4});
}

void add_sequences(Cases& all) {
  all.add("RNN", RNN(6, 5, {.num_layers = 2, .batch_first = true}), {4, 6});
  all.add("RNN", RNN(6, 5, {.bias = false, .batch_first = true}, RNN::Nonlinearity::relu), {4, 6});
  const RecurrentOptions both{.num_layers = 2, .batch_first = true, .bidirectional = true};
  all.add("GRU", GRU(6, 5, both), {4, 6});
  all.add("LSTM", LSTM(6, 5, both), {4, 6});
  all.add("LSTM with projections", LSTM(6, 5, {.batch_first = true, .proj_size = 3}), {4, 6});
  all.add("RNNCell", RNNCell(3, 4), {3});
  all.add("GRUCell", GRUCell(3, 4), {3});
  all.add("LSTMCell", LSTMCell(3, 4), {3});
  all.add("MultiheadAttention", MultiheadAttention(8, 2, {.batch_first = true}), {5, 8});
  all.add(
      "MultiheadAttention",
      MultiheadAttention(8, 2, {.add_bias_kv = true, .add_zero_attn = true, .batch_first = true}),
      {5, 8});
  const TransformerOptions options{.dim_feedforward = 16, .batch_first = true};
  all.add("TransformerEncoderLayer", TransformerEncoderLayer(8, 2, options), {5, 8});
  all.add("TransformerDecoderLayer", TransformerDecoderLayer(8, 2, options), {5, 8});
  all.add("PositionalEmbedding", PositionalEmbedding(6, 4), {5, 4});
  Sequential network{Conv2d(4, 3, 3), Tanh(), Flatten(), Linear(48, 2)};
  network.set_segments({{1, 3}});
  all.add("Sequential", std::move(network), {4, 6, 6});
  all.add("Residual", Residual(Linear(3, 3)), {3});
}

// An operation as a module: its batched arguments are slices of the input's rows, its shared ones
// constants or parameters.
class OfInstance final : public Module {
 public:
  explicit OfInstance(Instance instance) : instance_(std::move(instance)) {}
  Var forward(const Var& x) override {
    std::vector<Var> arguments;
    std::int64_t at = 0;
    for (const OpInput& input : instance_.inputs) {
      const Tensor value = single(input.value);
      if (!input.samples.batched()) {
        arguments.push_back(x.tape().constant(value));
        continue;
      }
      Shape shape = front(value, input.samples.axis()).shape();
      shape[0] = 1;
      const std::int64_t size = shape.numel();
      shape[0] = -1;
      const Var rows = reshape(slice(x, 1, at, at + size), shape);
      arguments.push_back(moved(rows, 0, input.samples.axis()));
      at += size;
    }
    const Var y = instance_.run(arguments);
    return moved(y, y.samples().axis(), 0);
  }
  // The rows of all batched arguments, [n, elements of a sample].
  Tensor rows() const {
    std::vector<Tensor> parts;
    for (const OpInput& input : instance_.inputs) {
      if (!input.samples.batched()) continue;
      const Tensor rows = front(single(input.value), input.samples.axis());
      parts.push_back(
          sotto::reshape(contiguous(rows), {rows.size(0), rows.numel() / rows.size(0)}));
    }
    return concat(parts, 1);
  }
  bool batched() const {
    bool any = false, floats = true;
    for (const OpInput& input : instance_.inputs) {
      any = any || (input.samples.batched() && input.value.numel() > 0);
      floats = floats && (!input.samples.batched() || is_float(input.value.dtype()));
    }
    return any && floats;
  }

 private:
  static Tensor single(const Tensor& x) {
    return is_float(x.dtype()) ? to_dtype(x, Dtype::f32) : x;
  }
  static Tensor front(const Tensor& x, int axis) {
    Shape order{axis};
    for (int i = 0; i < x.rank(); ++i)
      if (i != axis) order.push_back(i);
    return x.permute(order);
  }
  static Var moved(const Var& x, int from, int to) {
    Shape order;
    for (int i = 0; i < x.rank(); ++i)
      if (i != from) order.push_back(i);
    order.insert(to, from);
    return permute(x, order);
  }

  Instance instance_;
};

}  // namespace

std::vector<OnnxCase> onnx_layers() {
  manual_seed(7);
  Cases all;
  add_dense(all);
  add_images(all);
  add_norms(all);
  add_activations(all);
  add_sequences(all);
  return std::move(all.made);
}

std::vector<OnnxCase> onnx_ops() {
  std::vector<OnnxCase> made;
  PublicRandom random(5);
  for (const OpCase& one : op_cases()) {
    constexpr int instances = 3;
    for (int i = 0; i < instances; ++i) {
      auto module = std::make_unique<OfInstance>(one.make(random));
      if (!module->batched()) continue;
      const Tensor rows = module->rows();
      made.push_back({"op: " + one.op + ": " + one.what, std::move(module), rows});
    }
  }
  return made;
}

}  // namespace sotto::testing
