#include "samples/text/network.h"

#include <algorithm>

#include "autograd/ops.h"
#include "core/error.h"
#include "nn/layers.h"
#include "samples/text/trigram.h"

namespace sotto::text {

namespace {

constexpr std::int64_t max_width = 1 << 16;
constexpr std::int64_t max_layers = 64;
constexpr std::int64_t widening = 4;  // of a transformer's feed-forward layers

std::unique_ptr<nn::RecurrentLayers> recurrent_layers(const TextNetworkOptions& options) {
  const nn::RecurrentOptions layers{
      .num_layers = options.layers, .batch_first = true, .bidirectional = options.bidirectional};
  if (options.model == "gru")
    return std::make_unique<nn::GRU>(options.embedding, options.hidden, layers);
  return std::make_unique<nn::LSTM>(options.embedding, options.hidden, layers);
}

class RecurrentNetwork final : public Network {
 public:
  RecurrentNetwork(const TextNetworkOptions& options, const NetworkSizes& sizes)
      : directions_(options.bidirectional ? 2 : 1),
        each_position_(sizes.each_position),
        symbols_(sizes.symbols, options.embedding),
        layers_(recurrent_layers(options)),
        outputs_(directions_ * options.hidden, sizes.outputs) {}

  Var forward(const Var& ids, const Tensor& lengths) override {
    const nn::RecurrentOutputs y = layers_->run(symbols_(ids), {.lengths = lengths});
    return outputs_(each_position_ ? y.output : last_states(y.h));
  }
  void visit(const nn::Visitor& visitor) override {
    visitor("symbols", symbols_);
    visitor("layers", *layers_);
    visitor("outputs", outputs_);
  }

 private:
  // The last layer's states, of both directions: h is [layers * directions, n, hidden].
  Var last_states(const Var& h) const {
    const Var last = select(h, 0, h.shape()[0] - 1);
    return directions_ == 1 ? last : concat({select(h, 0, h.shape()[0] - 2), last}, 1);
  }

  std::int64_t directions_;
  bool each_position_;
  nn::Embedding symbols_;
  std::unique_ptr<nn::RecurrentLayers> layers_;
  nn::Linear outputs_;
};

class TransformerNetwork final : public Network {
 public:
  TransformerNetwork(const TextNetworkOptions& options, const NetworkSizes& sizes)
      : each_position_(sizes.each_position),
        symbols_(sizes.symbols, options.hidden),
        positions_(sizes.context, options.hidden),
        norm_(options.hidden, {.writes_16bit = sizes.each_position}),
        outputs_(options.hidden, sizes.outputs) {
    for (std::int64_t k = 0; k < options.layers; ++k)
      blocks_.push_back(std::make_unique<nn::TransformerEncoderLayer>(
          options.hidden, options.heads,
          nn::TransformerOptions{.dim_feedforward = widening * options.hidden,
                                 .dropout = 0,
                                 .activation = nn::FeedForwardActivation::gelu,
                                 .batch_first = true,
                                 .norm_first = true}));
  }

  // Causal attention needs no mask for padding, which follows the symbols.
  Var forward(const Var& ids, const Tensor& lengths) override {
    Var x = positions_(symbols_(ids));
    for (const auto& block : blocks_) x = block->forward(x, {.causal = true});
    x = norm_(x);
    if (each_position_) return outputs_(x);
    const Var shares = ids.tape().input(shares_of(lengths, ids.shape()[1]));
    return outputs_(sum(x * shares, {1}));
  }
  void visit(const nn::Visitor& visitor) override {
    visitor("symbols", symbols_);
    visitor("positions", positions_);
    for (std::size_t k = 0; k < blocks_.size(); ++k)
      visitor("blocks." + std::to_string(k), *blocks_[k]);
    visitor("norm", norm_);
    visitor("outputs", outputs_);
  }

 private:
  // 1 / length for each of a row's symbols, 0 for its padding: [n, t, 1].
  static Tensor shares_of(const Tensor& lengths, std::int64_t t) {
    std::vector<float> shares;
    for (const std::int64_t length : lengths.to(cpu).to_vector<std::int64_t>()) {
      for (std::int64_t k = 0; k < t; ++k)
        shares.push_back(k < length ? 1 / static_cast<float>(length) : 0);
    }
    return Tensor::from(shares, {lengths.shape()[0], t, 1}).to(lengths.device());
  }

  bool each_position_;
  nn::Embedding symbols_;
  nn::PositionalEmbedding positions_;
  std::vector<std::unique_ptr<nn::TransformerEncoderLayer>> blocks_;
  nn::LayerNorm norm_;
  nn::Linear outputs_;
};

void check_range(const char* option, std::int64_t value, std::int64_t max) {
  check(value >= 1 && value <= max, "{}: {} is not from 1 to {}", option, value, max);
}

}  // namespace

std::vector<std::string> network_names() { return {"gru", "lstm", "transformer", "trigram"}; }

Var forward_rows(Network& network, Tape& tape, const Dataset& rows) {
  return network(tape.input(rows.inputs), rows.field("lengths"));
}

std::unique_ptr<Network> make_network(const TextNetworkOptions& options,
                                      const NetworkSizes& sizes) {
  const std::vector<std::string> names = network_names();
  check(std::find(names.begin(), names.end(), options.model) != names.end(),
        "--model: no network is called {}", options.model);
  check_range("--hidden", options.hidden, max_width);
  check_range("--layers", options.layers, max_layers);
  check_range("--embedding", options.embedding, max_width);
  check_range("--heads", options.heads, options.hidden);
  const bool trigram = options.model == "trigram";
  check(!trigram || sizes.each_position, "--model: a trigram model is for --task generate only");
  const bool recurrent = options.model != "transformer" && !trigram;
  check(recurrent || options.hidden % options.heads == 0,
        "--heads: {} do not divide a width (--hidden) of {}", options.heads, options.hidden);
  check(!options.bidirectional || (recurrent && !sizes.each_position),
        "--bidirectional: for gru and lstm with --task classify only");
  if (trigram) return std::make_unique<TrigramNetwork>(sizes.symbols);
  if (recurrent) return std::make_unique<RecurrentNetwork>(options, sizes);
  return std::make_unique<TransformerNetwork>(options, sizes);
}

}  // namespace sotto::text
