// Layers with a frozen quantised weight, and LoRA around them.
#include "nn/layers/quantized_layers.h"

#include "autograd/ops.h"
#include "autograd/sink.h"
#include "kernels/quantized/quantized.h"
#include "nn/check/check_layer.h"
#include "nn/init.h"
#include "nn/layers/lora.h"
#include "nn/state.h"
#include "tests/support/catch.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/op_cases.h"
#include "tests/support/random_blocks.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

BlockMatrix blocks(std::int64_t rows, std::int64_t columns,
                   BlockFormat format = BlockFormat::q4_1) {
  PublicRandom random(1, static_cast<std::uint64_t>(rows * columns));
  return random_blocks(random, format, rows, columns);
}

Tensor output(nn::Module& module, const Tensor& x) {
  Tape tape;
  return module(tape.input(x)).value();
}

// A language model of two linear layers whose output layer is its table.
struct Tied final : nn::Module {
  Tied() {
    table = std::make_unique<nn::QuantizedEmbedding>(blocks(6, 32, BlockFormat::q8_0));
    up = std::make_unique<nn::QuantizedLinear>(blocks(64, 32), full({64}, 0.5));
    down = std::make_unique<nn::QuantizedLinear>(blocks(32, 64, BlockFormat::q4_0));
  }
  Var forward(const Var& ids) override {
    const Var x = (*down)(tanh((*up)((*table)(ids))));
    if (const auto* tied = dynamic_cast<nn::QuantizedEmbedding*>(table.get()))
      return tied->output(x);
    return linear(x, x.tape().use(*dynamic_cast<nn::Embedding&>(*table).weight));
  }
  void visit(const nn::Visitor& visitor) override {
    visitor("table", table);
    visitor("up", up);
    visitor("down", down);
  }
  std::unique_ptr<nn::Module> table, up, down;
};

const Tensor some_ids = Tensor::from(std::vector<std::int64_t>{5, 0, 2, 2, 1, 4}, {3, 2});

}  // namespace

TEST_CASE("quantised layers obey the laws, with LoRA around them too") {
  nn::manual_seed(7);
  const auto check_on = [](auto layer) {
    CHECK_NOTHROW(testing::check_layer(layer,
                                       [](PublicRandom& random) {
                                         return uniform_values(random, {draw(random, 1, 3), 2, 32});
                                       },
                                       {.instances = 4}));
  };
  check_on(nn::QuantizedLinear(blocks(3, 32)));
  check_on(nn::QuantizedLinear(blocks(3, 32), full({3}, 1)));
  check_on(nn::LoraQuantizedLinear(nn::QuantizedLinear(blocks(3, 32)), {.rank = 2}));
}

TEST_CASE("a quantised weight is no parameter, and a bias is a frozen one") {
  Tied model;
  REQUIRE(model.named_parameters().size() == 1);
  CHECK(model.named_parameters()[0].first == "up.bias");
  CHECK(!model.parameters()[0]->trainable);
  const std::vector<nn::NamedBlocks> all = nn::named_blocks(model);
  REQUIRE(all.size() == 3);
  CHECK(all[0].name == "table.weight");
  CHECK(all[2].name == "down.weight");
  CHECK(all[2].blocks->format == BlockFormat::q4_0);
  CHECK(throws([] { nn::QuantizedLinear(blocks(3, 32), zeros({2})); }, "bias (2)"));
  BlockMatrix cut = blocks(3, 32);
  cut.shape = {3, 64};
  CHECK(throws([&] { nn::QuantizedEmbedding{cut}; }, "QuantizedEmbedding: (3, 20) bytes"));
}

TEST_CASE("a model with quantised weights is not saved without them, and widened on purpose") {
  Tied model;
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/model.safetensors";
  CHECK(throws([&] { nn::save_module(path, model); }, "table.weight is quantised (Q8_0)"));
  const Tensor before = output(model, some_ids);
  nn::widen_blocks(model);
  CHECK(same_bits(output(model, some_ids), before));
  CHECK(nn::named_blocks(model).empty());
  CHECK(model.parameter_count() == 6 * 32 + 64 * 32 + 64 + 32 * 64);
  for (const Parameter* parameter : model.parameters()) CHECK(!parameter->trainable);
  CHECK_NOTHROW(nn::save_module(path, model));
  nn::LoraQuantizedLinear held(nn::QuantizedLinear(blocks(3, 32)));
  CHECK(throws([&] { nn::widen_blocks(held); }, "the owner of base does not hold it by pointer"));
}

TEST_CASE("LoRA around a quantised weight trains the thin maps, and merges by widening alone") {
  nn::manual_seed(3);
  const BlockMatrix w = blocks(4, 64, BlockFormat::q8_0);
  nn::Linear wide = nn::QuantizedLinear(w, full({4}, 0.25)).to_linear();
  std::unique_ptr<nn::Module> held = std::make_unique<nn::QuantizedLinear>(w, full({4}, 0.25));
  const auto sizes = nn::lora_sizes(*held);
  REQUIRE(sizes);
  CHECK((sizes->out == 4 && sizes->in == 64));
  held = nn::with_lora(*held, {.rank = 2, .alpha = 3});
  auto& layer = dynamic_cast<nn::LoraQuantizedLinear&>(*held);
  nn::LoraLinear other(std::move(wide), {.rank = 2, .alpha = 3});
  PublicRandom random(4);
  for (const auto part : {&nn::LoraLayer::lora_a, &nn::LoraLayer::lora_b}) {
    const Tensor values =
        to_dtype(uniform_values(random, (layer.*part)->value.shape()), Dtype::f32);
    (layer.*part)->value = (other.*part)->value = values;
  }
  const Tensor x = to_dtype(uniform_values(random, {3, 2, 64}), Dtype::f32);
  check_close(output(layer, x), values(output(other, x)));
  Tape tape;
  SumSink sink;
  tape.backward(sum_per_sample(square(layer(tape.input(x)))), sink);
  CHECK(sink.gradients().size() == 2);
  CHECK(throws([&] { layer.merge(); }, "the base is quantised (Q8_0)"));
  const std::vector<double> before = values(output(layer, x));
  const std::unique_ptr<nn::Module> merged = layer.take_merged();
  check_close(output(*merged, x), before);
}
