// Known silent faults of other libraries for private training, in layers and in their notion of a
// sample. Each test shows the right result here. Cancelling norms are in norm_methods_test.cpp,
// operations that mix samples in sample_mixing_test.cpp.
#include "autograd/ops.h"
#include "core/random/philox.h"
#include "dp/clipping/clipper.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/check/check_layer.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/op_cases.h"
#include "tests/support/throws.h"

using namespace sotto;
using testing::check_layer;

namespace {

using Make = std::function<Tensor(PublicRandom&)>;

Make floats(const Shape& shape) {
  return [shape](PublicRandom& random) { return uniform_values(random, shape); };
}
Make numbers(const Shape& shape, std::int64_t below) {
  return [=](PublicRandom& random) { return random_ids(random, shape, below); };
}

constexpr testing::CheckOptions few{.instances = 6};

using Loss = std::function<Var(Tape& tape, std::int64_t first, std::int64_t end)>;

// The norms of samples first .. end - 1, run together.
std::vector<double> norms(const std::vector<Parameter*>& parameters, const Loss& loss,
                          std::int64_t first, std::int64_t end, const ClipOptions& options = {},
                          ClipPasses passes = ClipPasses::one) {
  Clipper clipper(flat_group(parameters, 1), options, passes);
  Tape tape({.private_data = true, .seed = 3, .first_row = first});
  clipper.add(tape, loss(tape, first, end));
  return clipper.statistics().norms[0];
}

// Checks that samples have the same norms together and alone, by every norm method and in one pass
// or two.
void check_norms(const std::vector<Parameter*>& parameters, std::int64_t n, const Loss& loss) {
  for (const NormMethod norm_method :
       {NormMethod::automatic, NormMethod::ghost, NormMethod::materialize}) {
    for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
      const auto together = norms(parameters, loss, 0, n, {.norm_method = norm_method}, passes);
      for (std::int64_t k = 0; k < n; ++k) {
        const double alone =
            norms(parameters, loss, k, k + 1, {.norm_method = NormMethod::materialize})[0];
        CHECK(together[static_cast<std::size_t>(k)] == Approx(alone).epsilon(1e-9));
      }
    }
  }
}

Tensor random_values(std::uint64_t stream, const Shape& shape) {
  PublicRandom random(81, stream);
  return uniform_values(random, shape);
}

}  // namespace

TEST_CASE("convolutions of every padding mode have exact gradients") {
  for (const PadMode mode :
       {PadMode::zeros, PadMode::reflect, PadMode::replicate, PadMode::circular}) {
    nn::Conv2d layer(4, 6, Shape{3}, {.padding = {1}, .groups = 2, .mode = mode});
    CHECK_NOTHROW(check_layer(layer, floats({3, 4, 5, 4}), few));
    nn::Conv1d same(2, 3, Shape{4}, {.dilation = {2}, .same = true, .mode = mode});
    CHECK_NOTHROW(check_layer(same, floats({3, 2, 9}), few));
  }
}

TEST_CASE("a padding row gets no gradient from any sample") {
  nn::Embedding layer(5, 3, {.padding = 2});
  layer.to(Dtype::f64);
  Clipper clipper(flat_group(layer.parameters(), 1));
  Tape tape({.private_data = true});
  const Tensor ids = Tensor::from(std::vector<std::int64_t>{2, 1, 2, 4, 2, 2}, {2, 3});
  clipper.add(tape, sum_per_sample(affine(layer(tape.input(ids)), 1, 1)));
  for (const auto& [parameter, sum] : clipper.clipped_sums()) {
    CHECK(values(sum.select(0, 2)) == std::vector<double>(3, 0.0));
    CHECK(values(sum.select(0, 1)) != std::vector<double>(3, 0.0));
  }
}

TEST_CASE("options of an embedding that depend on other samples or data are refused") {
  CHECK(throws([] { nn::Embedding(5, 3, {.scale_grad_by_freq = true}); }, "other samples"));
  CHECK(throws([] { nn::Embedding(5, 3, {.max_norm = 1.0}); }, "without noise"));
}

TEST_CASE("an id that a bag holds several times counts as often, in every mode") {
  for (const nn::BagMode mode : {nn::BagMode::sum, nn::BagMode::mean, nn::BagMode::max}) {
    nn::EmbeddingBag layer(3, 2, {.mode = mode});
    CHECK_NOTHROW(check_layer(layer, numbers({4, 6}, 3), few));
  }
}

TEST_CASE("a weight of one bag does not reach another, not even as NaN") {
  nn::EmbeddingBag layer(4, 2, {.mode = nn::BagMode::sum});
  const auto norms_for = [&](float first) {
    Clipper clipper(flat_group(layer.parameters(), 1));
    Tape tape({.private_data = true});
    const Var y =
        layer.forward(tape, Tensor::from(std::vector<std::int64_t>{0, 1, 2, 3}, {4}),
                      Tensor::from(std::vector<std::int64_t>{0, 3}, {2}),
                      tape.constant(Tensor::from(std::vector<float>{first, 1, 1, 1}, {4})));
    clipper.add(tape, sum_per_sample(square(y)));
    return clipper.statistics().norms[0];
  };
  const std::vector<double> clean = norms_for(1), spoilt = norms_for(std::nanf(""));
  CHECK(std::isnan(spoilt[0]));
  CHECK(spoilt[1] == clean[1]);
}

TEST_CASE("a layer norm may go without its bias, or without both") {
  nn::LayerNorm without(4, {.bias = false});
  CHECK_NOTHROW(check_layer(without, floats({3, 2, 4}), few));
  nn::LayerNorm plain(4, {.affine = false});
  CHECK_NOTHROW(check_layer(plain, floats({3, 2, 4}), few));
}

TEST_CASE("batch-first attention of several heads is sequence-first attention") {
  nn::manual_seed(2);
  nn::MultiheadAttention first(8, 4, {.add_bias_kv = true, .batch_first = true});
  CHECK_NOTHROW(check_layer(first, floats({3, 5, 8}), few));
  nn::manual_seed(2);
  nn::MultiheadAttention second(8, 4, {.add_bias_kv = true});
  const Tensor x = to_dtype(random_values(1, {3, 5, 8}), Dtype::f32);
  Tape tape({.private_data = true});
  const Var steps = second(transpose(tape.input(x), 0, 1));
  check_close(first(tape.input(x)).value(), values(transpose(steps, 0, 1).value()));
}

TEST_CASE("dropout of a recurrent network acts between layers only") {
  nn::manual_seed(3);
  nn::LSTM one(3, 4, {.batch_first = true, .dropout = 0.9});
  Tape tape({.private_data = true, .seed = 1}), calm({.private_data = true, .training = false});
  const Tensor x = to_dtype(random_values(2, {2, 6, 3}), Dtype::f32);
  CHECK(values(one(tape.input(x)).value()) == values(one(calm.input(x)).value()));
  nn::LSTM two(3, 4, {.num_layers = 2, .batch_first = true, .dropout = 0.9});
  const std::vector<double> y = values(two(tape.input(x)).value());
  CHECK(y != values(two(calm.input(x)).value()));
  CHECK(std::count(y.begin(), y.end(), 0.0) == 0);
}

TEST_CASE("lengths in any order leave the rows of a table and of a network side by side") {
  nn::manual_seed(4);
  nn::Embedding table(7, 3);
  nn::GRU network(3, 4, {.batch_first = true, .bidirectional = true});
  table.to(Dtype::f64);
  network.to(Dtype::f64);
  std::vector<Parameter*> parameters = table.parameters();
  for (Parameter* p : network.parameters()) parameters.push_back(p);
  PublicRandom random(9);
  const Tensor ids = random_ids(random, {4, 5}, 7);
  const Tensor lengths = Tensor::from(std::vector<std::int64_t>{2, 5, 1, 4}, {4});
  check_norms(parameters, 4, [&](Tape& tape, std::int64_t first, std::int64_t end) {
    const Var words = table(tape.input(ids.slice(0, first, end)));
    const nn::RecurrentOutputs y =
        network.run(words, {std::nullopt, std::nullopt, lengths.slice(0, first, end)});
    return sum_per_sample(square(y.output)) + sum_per_sample(square(transpose(y.h, 0, 1)));
  });
}

TEST_CASE("a linear layer takes inputs of any rank, one after the other") {
  nn::manual_seed(5);
  nn::Linear layer(4, 3);
  layer.to(Dtype::f64);
  for (const Shape& shape :
       {Shape{3, 4}, Shape{3, 5, 4}, Shape{3, 2, 3, 4}, Shape{3, 2, 1, 2, 4}}) {
    const Tensor x = random_values(3, shape);
    check_norms(layer.parameters(), 3, [&](Tape& tape, std::int64_t first, std::int64_t end) {
      return sum_per_sample(square(layer(tape.input(x.slice(0, first, end)))));
    });
  }
}

TEST_CASE("a weight may be reused as a function's argument, transposed, and in arithmetic") {
  nn::Linear layer(4, 4);
  layer.to(Dtype::f64);
  const Tensor x = random_values(4, {3, 2, 4});
  check_norms(layer.parameters(), 3, [&](Tape& tape, std::int64_t first, std::int64_t end) {
    const Var h = tanh(layer(tape.input(x.slice(0, first, end))));
    const Var w = tape.use(*layer.weight);
    return sum_per_sample(square(linear(h, w) + matmul(h, w))) + sum(square(w));
  });
}

TEST_CASE("the input of an activation may be reused") {
  nn::Linear layer(4, 4);
  layer.to(Dtype::f64);
  const Tensor x = random_values(5, {3, 4});
  check_norms(layer.parameters(), 3, [&](Tape& tape, std::int64_t first, std::int64_t end) {
    const Var h = layer(tape.input(x.slice(0, first, end)));
    return sum_per_sample(square(relu(h) * h + h));
  });
}

TEST_CASE("a parameter that a step does not use has a clipped sum of zero") {
  nn::Linear used(4, 2), unused(4, 2);
  std::vector<Parameter*> parameters = used.parameters();
  for (Parameter* p : unused.parameters()) parameters.push_back(p);
  for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
    Clipper clipper(flat_group(parameters, 1), {}, passes);
    Tape tape({.private_data = true});
    clipper.add(tape, sum_per_sample(square(used(tape.input(zeros({3, 4}))))));
    const Gradients sums = clipper.clipped_sums();
    REQUIRE(sums.size() == 4);
    for (const auto& [parameter, sum] : sums) {
      if (parameter == unused.weight.get()) CHECK(values(sum) == std::vector<double>(8, 0.0));
    }
  }
}

TEST_CASE("a forward without backward leaves nothing behind") {
  nn::Linear layer(4, 2);
  const auto step = [&](bool evaluated) {
    Clipper clipper(flat_group(layer.parameters(), 1));
    if (evaluated) {
      Tape tape({.private_data = true});
      layer(tape.input(full({7, 4}, 3)));
    }
    Tape tape({.private_data = true});
    if (evaluated) layer(tape.input(full({2, 4}, 2)));
    clipper.add(tape, sum_per_sample(square(layer(tape.input(full({2, 4}, 1))))));
    return clipper.statistics().norms[0];
  };
  CHECK(step(true) == step(false));
}

TEST_CASE("models take several inputs and options, and give several outputs") {
  struct Pair {
    nn::Linear left{3, 2}, right{4, 2};
    struct Outputs {
      Var sum, difference;
    };
    Outputs forward(const Var& x, const Var& y, double gain) {
      const Var a = left(x), b = affine(right(y), gain, 0);
      return {a + b, a - b};
    }
  } model;
  std::vector<Parameter*> parameters = model.left.parameters();
  for (Parameter* p : model.right.parameters()) parameters.push_back(p);
  model.left.to(Dtype::f64);
  model.right.to(Dtype::f64);
  const Tensor x = random_values(6, {3, 3}), y = random_values(7, {3, 4});
  check_norms(parameters, 3, [&](Tape& tape, std::int64_t first, std::int64_t end) {
    const auto [sum, difference] =
        model.forward(tape.input(x.slice(0, first, end)), tape.input(y.slice(0, first, end)), 0.5);
    return sum_per_sample(square(sum)) + sum_per_sample(abs(difference));
  });
}

TEST_CASE("a loss with class weights and ignored targets is its sample's own") {
  nn::Linear layer(4, 3);
  layer.to(Dtype::f64);
  const Tensor x = random_values(8, {4, 2, 4});
  const Tensor targets = Tensor::from(std::vector<std::int64_t>{0, 2, 9, 1, 9, 9, 2, 2}, {4, 2});
  check_norms(layer.parameters(), 4, [&](Tape& tape, std::int64_t first, std::int64_t end) {
    const Var logits = layer(tape.input(x.slice(0, first, end)));
    return cross_entropy(logits, targets.slice(0, first, end),
                         {.class_axis = 2,
                          .ignore_index = 9,
                          .class_weights = Tensor::from(std::vector<double>{1, 5, 0.2}, {3})});
  });
}

TEST_CASE("layers pass an empty batch, privately") {
  const auto passes = [](nn::Module& layer, const Tensor& x) {
    Clipper clipper(flat_group(layer.parameters(), 1));
    Tape tape({.private_data = true});
    clipper.add(tape, sum_per_sample(layer(tape.input(x))));
    return clipper.statistics().norms[0].empty();
  };
  nn::InstanceNorm2d instance(4, {.affine = true});
  nn::GroupNorm group(2, 4);
  nn::Conv2d conv(4, 2, Shape{3}, {.padding = {1}, .mode = PadMode::circular});
  for (nn::Module* layer : std::initializer_list<nn::Module*>{&instance, &group, &conv})
    CHECK(passes(*layer, zeros({0, 4, 5, 5})));
  nn::EmbeddingBag bag(3, 2, {.mode = nn::BagMode::max});
  CHECK(passes(bag, zeros({0, 4}, Dtype::i64)));
  nn::MultiheadAttention attention(8, 2, {.batch_first = true});
  CHECK(passes(attention, zeros({0, 3, 8})));
  nn::LSTM network(3, 4, {.num_layers = 2, .batch_first = true, .bidirectional = true});
  CHECK(passes(network, zeros({0, 5, 3})));
}
