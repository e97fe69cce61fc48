// Residual blocks on 16-bit tapes: sums stay f32, branches 16 bits, and nothing is converted to
// f32.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "autograd/sink.h"
#include "kernels/profile.h"
#include "nn/layers/attention_layers.h"
#include "nn/models/decoder.h"
#include "nn/models/encoder_block.h"
#include "tests/nn/models/small_models.h"
#include "tests/support/catch.h"

using namespace sotto;

namespace {

constexpr std::int64_t rows = 2, length = 3;

// The copies from bf16 to f32, by their shapes, of a step with the losses `losses(tape)`.
std::vector<std::string> conversions_to_f32(const std::function<Var(Tape&)>& losses) {
  const KernelProfile profile;
  Tape tape({.training = false, .precision = Dtype::bf16});
  PerSampleGradSink sink;
  tape.backward(losses(tape), sink);
  std::vector<std::string> shapes;
  for (const KernelTotal& total : profile.totals()) {
    const std::size_t first = total.shapes.find(' ');
    const std::string from = total.shapes.substr(0, first);
    if (total.name == "copy" && from == total.shapes.substr(first + 1) + ":bf16")
      shapes.push_back(from);
  }
  return shapes;
}

bool has_width(const std::vector<std::string>& shapes, std::int64_t width) {
  return std::ranges::count(shapes, fmt::format("{}x{}x{}:bf16", rows, length, width)) > 0;
}

}  // namespace

TEST_CASE("decoders in bf16 convert nothing of their width to f32") {
  nn::manual_seed(3);
  nn::Gpt2 gpt2(small_gpt2());
  nn::Llama llama(small_llama());
  const Tensor ids = Tensor::from(some_ids(rows * length), {rows, length});
  for (nn::LanguageModel* model :
       {static_cast<nn::LanguageModel*>(&gpt2), static_cast<nn::LanguageModel*>(&llama)}) {
    const auto shapes = conversions_to_f32(
        [&](Tape& tape) { return nn::next_token_loss((*model)({.ids = tape.input(ids)}), ids); });
    CHECK_FALSE(has_width(shapes, model == &gpt2 ? 8 : 12));
  }
}

TEST_CASE("pre-norm encoders in bf16 convert nothing to f32, and post-norm ones keep sums in f32") {
  nn::manual_seed(4);
  constexpr std::int64_t width = 8;
  const Tensor data = nn::random_normal({rows, length, width});
  nn::Linear linear(width, width);
  for (const bool writes_16bit : {true, false}) {
    nn::LayerNorm norm(width, {.writes_16bit = writes_16bit});
    const auto shapes = conversions_to_f32([&](Tape& tape) {
      const Var x = tape.input(data);
      return sum_per_sample(square(x + linear(norm(x))));
    });
    CHECK(has_width(shapes, width) == !writes_16bit);
  }
  for (const bool norm_first : {true, false}) {
    const nn::EncoderBlockNames names{.query_key_value = "qkv",
                                      .projection = "proj",
                                      .attention_norm = "norm1",
                                      .fc1 = "fc1",
                                      .fc2 = "fc2",
                                      .feed_forward_norm = "norm2"};
    nn::TransformerEncoderLayer layer(
        width, 2,
        {.dim_feedforward = 16, .dropout = 0, .batch_first = true, .norm_first = norm_first});
    nn::EncoderBlock block({.features = width,
                            .heads = 2,
                            .hidden_features = 16,
                            .names = names,
                            .activation = gelu,
                            .norm_first = norm_first});
    for (nn::Module* module :
         {static_cast<nn::Module*>(&layer), static_cast<nn::Module*>(&block)}) {
      const auto shapes = conversions_to_f32([&](Tape& tape) {
        const Var y = (*module)(tape.input(data));
        CHECK(y.dtype() == Dtype::f32);
        return sum_per_sample(square(y));
      });
      CHECK_FALSE((norm_first && has_width(shapes, width)));
    }
  }
}
