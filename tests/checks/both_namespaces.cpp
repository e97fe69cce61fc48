// A program that includes <sotto/sotto.h> alone and opens both namespaces: every layer has one
// meaning there (covered.py sees that none is left out), and so has what a first program needs.
#include <iostream>
#include <sstream>

#include <sotto/sotto.h>

using namespace sotto;
using namespace sotto::nn;

namespace {

template <class... T>
constexpr int count() {
  return (static_cast<int>(sizeof(T) > 0) + ...);
}

constexpr int activations =
    count<Relu, Relu6, LeakyRelu, Elu, Selu, Celu, Gelu, GeluTanh, Sigmoid, Silu, Tanh, Softplus,
          Mish, LogSigmoid, Softsign, Hardtanh, Hardswish, Hardsigmoid, Hardshrink, Softshrink,
          Threshold, Tanhshrink, TemperedSigmoid, PRelu, Softmax, LogSoftmax>();
constexpr int layers =
    count<Linear, Bilinear, Embedding, EmbeddingBag, Flatten, Dropout, Pad, PixelShuffle,
          PixelUnshuffle, Upsample, Residual, Sequential, ModuleList, ModuleDict, Conv<1>, Conv2d,
          ConvTranspose<3>, MaxPool<2>, AvgPool<1>, AdaptiveAvgPool<1>, AdaptiveMaxPool, LpPool,
          GroupNorm, LayerNorm, InstanceNorm<2>, RMSNorm, Standardize, LocalResponseNorm, RNN, GRU,
          LSTM, RNNCell, GRUCell, LSTMCell, MultiheadAttention, TransformerEncoderLayer,
          TransformerDecoderLayer, PositionalEmbedding, LoraLinear, LoraConv<2>, LoraEmbedding,
          QuantizedLinear, QuantizedEmbedding, LoraQuantizedLinear>();
constexpr int options = count<ConvOptions, ConvTransposeOptions, PoolOptions, SequenceOptions,
                              RecurrentOptions, UpsampleOptions, AttentionOptions, NormOptions,
                              BagOptions, LinearOptions, EngineOptions, TrainOptions, Dataset>();
static_assert(activations + layers + options > 0);

// Functions of a first program, from reading data to saving what was trained.
template <class... F>
constexpr bool exist(F*...) {
  return true;
}
static_assert(exist(&read_mnist, &make_digits, &manual_seed, &group_norm, &layer_norm, &zeros,
                    &full, &summary, &suggest, &calibrate_noise_multiplier, &max_steps,
                    &make_accountant, &checkpoint_mark, &load_checkpoint, &save_model, &save_module,
                    &load_module));

// A module of ids and lengths.
class Reader final : public ModuleOf<Tensor> {
 public:
  Var forward(const Var& ids, const Tensor& lengths) override {
    return linear_(select(lstm_.run(embedding_(ids), {.lengths = lengths}).h, 0, 0));
  }
  void visit(const Visitor& visitor) override {
    visitor("embedding", embedding_);
    visitor("lstm", lstm_);
    visitor("linear", linear_);
  }

 private:
  Embedding embedding_{10, 4};
  LSTM lstm_{4, 4, {.batch_first = true}};
  Linear linear_{4, 2};
};

}  // namespace

int main() {
  Tape tape;
  const Var x = tape.input(full({2, 3}, 0.5));
  const Var y = 2 * tanh(relu(-x)) + 1;
  std::ostringstream text;
  text << y.value();
  const bool printed = text.str() == fmt::format("{}", y.value());
  Reader reader;
  const Tensor ids = Tensor::from(std::vector<std::int64_t>{1, 2, 3, 4}, {2, 2});
  const Var read = reader(tape.input(ids), Tensor::from(std::vector<std::int64_t>{2, 1}, {2}));
  return printed && argmax(read.value(), 1).shape() == Shape{2} && zeros({2})[1].item() == 0 ? 0
                                                                                             : 1;
}
