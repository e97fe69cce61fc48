// Containers, low-rank adaptation, descriptions of models, and the replacement of batch norm.
#include "autograd/ops.h"
#include "core/random/philox.h"
#include "dp/clipping/clipper.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/convert.h"
#include "nn/functional.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/model_summary.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

Tensor normal_values(PublicRandom& random, const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (float& value : values) value = static_cast<float>(random.normal());
  return Tensor::from(values, shape);
}

std::vector<double> output(nn::Module& module, const Tensor& x) {
  Tape tape;
  return to_dtype(module(tape.input(x)).value(), Dtype::f64).to_vector<double>();
}

std::vector<double> norms(nn::Module& module, const Tensor& x) {
  std::vector<Parameter*> trained;
  for (Parameter* p : module.parameters()) {
    if (p->trainable) trained.push_back(p);
  }
  Clipper clipper(flat_group(trained, 1));
  Tape tape({.private_data = true});
  clipper.add(tape, sum_per_sample(square(module(tape.input(x)))));
  return clipper.statistics().norms[0];
}

// Checks that only the thin matrices are trained, exactly, and that merging changes no result.
template <class L>
void check_lora(L layer, const Tensor& x) {
  PublicRandom random(4);
  CHECK(output(layer, x) == output(layer.base, x));
  CHECK(layer.named_parameters().size() == (layer.base.named_parameters().size() + 2));
  for (Parameter* p : {layer.lora_a.get(), layer.lora_b.get()})
    p->value = normal_values(random, p->value.shape());
  const std::vector<double> apart = output(layer, x), together = norms(layer, x);
  for (std::int64_t n = 0; n < x.size(0); ++n) {
    CHECK(together[static_cast<std::size_t>(n)] ==
          Approx(norms(layer, x.slice(0, n, n + 1))[0]).epsilon(1e-5));
  }
  layer.merge();
  const std::vector<double> merged = output(layer, x);
  for (std::size_t i = 0; i < apart.size(); ++i) CHECK(merged[i] == Approx(apart[i]).margin(1e-4));
  CHECK(throws([&] { layer.merge(); }, "already merged"));
  layer.unmerge();
  CHECK(output(layer, x) == apart);
  const auto plain = layer.take_merged();
  CHECK(output(*plain, x) == merged);
}

}  // namespace

TEST_CASE("low-rank adaptation of linear layers, convolutions and tables") {
  nn::manual_seed(6);
  PublicRandom random(5);
  check_lora(nn::LoraLinear(nn::Linear(5, 4), {.rank = 2, .alpha = 3}),
             normal_values(random, {3, 5}));
  check_lora(nn::LoraConv2d(nn::Conv2d(2, 4, 3, {.stride = {2}, .padding = {1}}), {.rank = 2}),
             normal_values(random, {3, 2, 6, 6}));
  check_lora(nn::LoraConv1d(nn::Conv1d(4, 6, 3, {.groups = 2}), {.rank = 2}),
             normal_values(random, {3, 4, 7}));
  check_lora(nn::LoraConv3d(nn::Conv3d(4, 4, 2, {.groups = 4}), {.rank = 1}),
             normal_values(random, {2, 4, 3, 3, 3}));
  check_lora(nn::LoraEmbedding(nn::Embedding(6, 4), {.rank = 2}),
             Tensor::from(std::vector<std::int64_t>{1, 5, 1, 0, 2, 2}, {3, 2}));
}

TEST_CASE("low-rank adaptation has a scale by the root of its rank, and its own dropout") {
  nn::manual_seed(6);
  PublicRandom random(5);
  const Tensor x = normal_values(random, {3, 5});
  nn::LoraLinear layer(nn::Linear(5, 4, {.bias = false}),
                       {.rank = 4, .alpha = 3, .rank_stabilized = true, .dropout = 0.5});
  CHECK(layer.options().scale() == 1.5);
  layer.base.weight->value = zeros({4, 5});
  layer.lora_b->value = normal_values(random, {4, 4});
  const auto training = [&](const Tensor& rows, std::int64_t first) {
    Tape tape({.private_data = true, .first_row = first});
    return layer(tape.input(rows)).value().to_vector<float>();
  };
  const std::vector<float> all = training(x, 0), last = training(x.slice(0, 2, 3), 2);
  CHECK(std::vector<float>(all.begin() + 8, all.end()) == last);
  CHECK(all != training(x, 3));
  CHECK(throws([] { nn::LoraLinear(nn::Linear(2, 2), {.dropout = 1}); }, "dropout 1"));
  CHECK(throws([] { nn::LoraLinear(nn::Linear(2, 2), {.rank = 0}); }, "rank 0"));
  nn::Tanh other;
  CHECK(throws([&] { nn::with_lora(other, {}); }, "a Tanh is not adapted"));
}

TEST_CASE("low-rank adaptation does not change a table's padding row") {
  nn::LoraEmbedding layer(nn::Embedding(5, 3, {.padding = -4}), {.rank = 2});
  layer.lora_b->value = full({3, 2}, 1);
  const Tensor ids = Tensor::from(std::vector<std::int64_t>{1, 1, 1}, {1, 3});
  CHECK(output(layer, ids) == std::vector<double>(9, 0.0));
  CHECK(norms(layer, ids) == std::vector<double>{0});
  layer.merge();
  CHECK(output(layer, ids) == std::vector<double>(9, 0.0));
}

TEST_CASE("lists and dictionaries of modules name their children") {
  nn::ModuleList list;
  list.add(nn::Linear(2, 3));
  list.add(nn::Sequential{nn::Linear(3, 1)});
  CHECK(list.named_parameters()[2].first == "1.0.weight");
  CHECK(throws([&] { list[2]; }, "module 2 of 2"));
  nn::ModuleDict dict;
  dict.add("left", nn::Linear(2, 3));
  CHECK(dict.named_parameters()[0].first == "left.weight");
  CHECK(throws([&] { dict["right"]; }, "no module \"right\""));
  CHECK(throws([&] { dict.add("left", nn::Tanh()); }, "\"left\" is already used"));
  CHECK(throws([&] { dict.add("a.b", nn::Tanh()); }, "\"a.b\""));
}

TEST_CASE("a model prints as a tree with shapes and counts, and as a table after a run") {
  nn::Sequential model{nn::Conv2d(1, 16, 3), nn::Tanh(), nn::Flatten(), nn::Linear(64, 10)};
  model[3].freeze();
  const std::string tree = nn::to_string(model);
  CHECK(tree.find("0: Conv<2>  weight (16, 1, 3, 3), bias (16)  (160)") != std::string::npos);
  CHECK(tree.find("3: Linear  weight (10, 64), bias (10)  (650, frozen)") != std::string::npos);
  CHECK(tree.find("810 parameters, 160 of them trained") != std::string::npos);
  const std::string table = nn::summary(model, zeros({2, 1, 4, 4}));
  CHECK(table.find("(2, 16, 2, 2)") != std::string::npos);
  // 2 x 16 x 2 x 2 floats; 160 parameters of 4 bytes.
  CHECK(table.find("512          160            640") != std::string::npos);
}

TEST_CASE("the table of a model of one's own has its layers in their places") {
  struct Tower final : nn::Module {
    Var forward(const Var& x) override { return body(x) + body(tanh(x)); }
    void visit(const nn::Visitor& visitor) override {
      visitor("body", body);
      visitor("unused", unused);
    }
    nn::Sequential body{nn::Linear(3, 3), nn::Relu()};
    nn::Linear unused{2, 2};
  } tower;
  const std::string table = nn::summary(tower, zeros({5, 3}));
  CHECK(table.find("  body: Sequential") != std::string::npos);
  // It is called twice, so its results are twice 5 x 3 floats.
  CHECK(table.find("    0: Linear                        (5, 3)                          120") !=
        std::string::npos);
  CHECK(table.find("  unused: Linear                     -                                 0") !=
        std::string::npos);
}

TEST_CASE("batch norm by hand is refused with the replacement's name, which then works") {
  PublicRandom random(7);
  const Tensor values = normal_values(random, {4, 6, 3, 3});
  Tape tape({.private_data = true});
  const Var x = tape.input(values);
  CHECK(throws([&] { x - mean(x, {0, 2, 3}, true); }, "group_norm_for_batch_norm"));
  CHECK(throws([&] { x - mean(x, {0, 2, 3}, true); }, "mean: combines samples"));
  const Tensor weight = normal_values(random, {6}), bias = normal_values(random, {6});
  nn::GroupNorm layer = nn::group_norm_for_batch_norm(weight, bias, 3);
  CHECK(layer.weight->value.to_vector<float>() == weight.to_vector<float>());
  CHECK(layer(x).shape() == values.shape());
  CHECK(throws([&] { nn::group_norm_for_batch_norm(weight, bias, 4); }, "4"));
}

TEST_CASE("layers beyond the common ones have the field's shapes and starting values") {
  nn::ConvTranspose2d up(4, 6, 3,
                         {.stride = {2}, .padding = {1}, .output_padding = {1}, .groups = 2});
  CHECK(up.weight->value.shape() == Shape({4, 3, 3, 3}));
  Tape tape({.private_data = true});
  CHECK(up(tape.input(zeros({2, 4, 5, 5}))).shape() == Shape({2, 6, 10, 10}));
  nn::PRelu prelu(4);
  CHECK(prelu.weight->value.to_vector<float>() == std::vector<float>(4, 0.25f));
  nn::Bilinear bilinear(2, 3, 4);
  CHECK(bilinear.forward(tape.input(zeros({2, 2})), tape.input(zeros({2, 3}))).shape() ==
        Shape({2, 4}));
  nn::Residual residual(nn::Linear(3, 3));
  CHECK(residual.named_parameters()[0].first == "inner.weight");
}

// (k + alpha / size sum x^2)^-beta over two channels below, the channel itself and two above.
TEST_CASE("local response norm is its formula") {
  Tape tape;
  const std::vector<double> x{1, 2, 3, 4, 5, 6};
  const std::vector<double> y =
      nn::local_response_norm(tape.input(Tensor::from(x, {1, 6, 1})), 5, 0.5, 0.75, 2)
          .value()
          .to_vector<double>();
  for (int c = 0; c < 6; ++c) {
    double sum = 0;
    for (int other = std::max(0, c - 2); other <= std::min(5, c + 2); ++other)
      sum += x[static_cast<std::size_t>(other)] * x[static_cast<std::size_t>(other)];
    CHECK(y[static_cast<std::size_t>(c)] ==
          Approx(x[static_cast<std::size_t>(c)] / std::pow(2 + 0.1 * sum, 0.75)));
  }
}
