#include "nn/export_onnx.h"

#include <fstream>
#include <iterator>
#include <map>
#include <numeric>

#include "autograd/custom_op.h"
#include "autograd/ops.h"
#include "core/error.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/layers/quantized_layers.h"
#include "nn/models/pretrained_model.h"
#include "nn/onnx/operators.h"
#include "tests/support/catch.h"
#include "tests/support/onnx_cases.h"
#include "tests/support/random_blocks.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

// A message of Protocol Buffers: the values of each field, numbers as text.
class Message {
 public:
  explicit Message(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::uint64_t tag = varint(bytes);
      std::string& value = fields_[static_cast<int>(tag >> 3U)].emplace_back();
      const std::uint64_t kind = tag & 7U;
      if (kind == 0) value = std::to_string(static_cast<std::int64_t>(varint(bytes)));
      if (kind == 0) continue;
      const std::size_t size = kind == 2 ? varint(bytes) : 4;
      check(size <= bytes.size(), "a field of {} bytes in {}", size, bytes.size());
      value = bytes.substr(0, size);
      bytes.remove_prefix(size);
    }
  }
  std::vector<std::string> all(int field) const {
    const auto found = fields_.find(field);
    return found == fields_.end() ? std::vector<std::string>{} : found->second;
  }
  std::string text(int field) const { return all(field).at(0); }
  Message message(int field, std::size_t k = 0) const { return Message(all(field).at(k)); }
  // The text of field `part` of each message in a field.
  std::vector<std::string> each(int field, int part) const {
    std::vector<std::string> texts;
    for (const std::string& one : all(field)) texts.push_back(Message(one).text(part));
    return texts;
  }

 private:
  static std::uint64_t varint(std::string_view& bytes) {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      check(!bytes.empty(), "a number without an end");
      const auto byte = static_cast<unsigned char>(bytes.front());
      bytes.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 127U) << shift;
      if (byte < 128) return value;
    }
  }

  std::map<int, std::vector<std::string>> fields_;
};

// Fields of onnx.proto.
constexpr int graph_of_model = 7, node = 1, initializer = 5, input = 11, output = 12, op_type = 4,
              tensor_name = 8, elements = 9, value_name = 1;

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Message graph(nn::Module& model, const Tensor& example) {
  const TemporaryFolder folder;
  nn::export_onnx(model, example, folder.path("model.onnx"));
  return Message(contents(folder.path("model.onnx"))).message(graph_of_model);
}

using Names = std::vector<std::string>;

// A function as a module.
struct Function final : nn::Module {
  explicit Function(std::function<Var(const Var&)> f) : f(std::move(f)) {}
  Var forward(const Var& x) override { return f(x); }
  std::function<Var(const Var&)> f;
};

bool refused(std::function<Var(const Var&)> f, std::string_view why) {
  Function model(std::move(f));
  return throws([&] { graph(model, full({2, 3}, 2)); }, why);
}

// Two layers with one weight, and a bias that is frozen.
struct Tied final : nn::Module {
  Tied() { bias->trainable = false; }
  Var forward(const Var& x) override {
    const Var w = x.tape().use(*weight);
    return linear(relu(linear(x, w)), w, x.tape().use(*bias));
  }
  void visit(const nn::Visitor& visitor) override {
    visitor("body.weight", weight);
    visitor("head.weight", weight);
    visitor("head.bias", bias);
  }
  std::unique_ptr<Parameter> weight = std::make_unique<Parameter>(full({3, 3}, 0.5)),
                             bias = std::make_unique<Parameter>(full({3}, 7));
};

struct Tagger final : nn::TokenModel {
  nn::Embedding table{5, 4};
  Var forward(const nn::TokenInputs& inputs) override {
    const Var x = table(inputs.ids);
    return inputs.mask ? where(unsqueeze(*inputs.mask, -1), x, x.tape().constant(zeros({}))) : x;
  }
  nn::ModelParts parts() const override { return {}; }
  void visit(const nn::Visitor& visitor) override { visitor("table", table); }
};

// Tokens and the numbers of their places, in another shape.
struct Placed final : nn::TokenModel {
  explicit Placed(std::function<Var(const Var&)> f = {}) : f(std::move(f)) {}
  nn::Embedding table{5, 4};
  std::function<Var(const Var&)> f;
  Var forward(const nn::TokenInputs& inputs) override {
    const std::int64_t n = inputs.ids.shape()[0], t = inputs.ids.shape()[1];
    std::vector<float> places(static_cast<std::size_t>(t));
    std::iota(places.begin(), places.end(), 1.0F);
    const Var x = table(inputs.ids), y = x * x.tape().constant(Tensor::from(places, {t, 1}));
    return reshape(square(reshape(f ? f(y) : y, {n, 2 * t, 2})), {n, t, 4});
  }
  nn::ModelParts parts() const override { return {}; }
  void visit(const nn::Visitor& visitor) override { visitor("table", table); }
};

}  // namespace

TEST_CASE("a file has the operators in order, and the parameters by their names") {
  Tied model;
  const TemporaryFolder folder;
  nn::export_onnx(model, zeros({1, 3}), folder.path("model.onnx"), {{"x"}, "y"});
  const Message file(contents(folder.path("model.onnx")));
  CHECK(file.text(1) == "8");
  CHECK(file.message(8).text(2) == "17");
  const Message g = file.message(graph_of_model);
  CHECK(g.each(node, op_type) == Names{"Gemm", "Relu", "Gemm", "Identity"});
  CHECK(g.each(initializer, tensor_name) == Names{"body.weight", "head.bias"});
  const std::string bias = Message(g.all(initializer)[1]).text(elements);
  CHECK(bias.size() == 3 * sizeof(float));
  CHECK(reinterpret_cast<const float*>(bias.data())[2] == 7);
  CHECK(g.each(input, value_name) == Names{"x"});
  CHECK(g.each(output, value_name) == Names{"y"});
  // Type, tensor, shape: the number of samples is open, and the other size is the example's.
  const Message shape = g.message(input).message(2).message(1).message(2);
  CHECK(shape.message(1, 0).text(2) == "n");
  CHECK(shape.message(1, 1).text(1) == "3");
}

TEST_CASE("temporaries that operations would write over are values of their own") {
  Function model([](const Var& x) {
    const Var y = exp(relu(affine(relu(square(x)), 2, 0)));
    return y * relu(x.tape().constant(full({3}, 2)));
  });
  CHECK(graph(model, zeros({2, 3})).each(node, op_type) ==
        Names{"Mul", "Relu", "Mul", "Relu", "Exp", "Relu", "Mul", "Identity"});
}

TEST_CASE("views and calls that return their argument are followed") {
  Function model([](const Var& x) {
    const Var y = expand(detach(transpose(transpose(x, 0, 1), 0, 1)), {-1, 3});
    return concat({y, x.tape().constant(full({1, 1}, 4))}, 1);
  });
  const Names ops = graph(model, zeros({2, 3})).each(node, op_type);
  CHECK(std::count(ops.begin(), ops.end(), "Concat") == 2);
  CHECK(std::count(ops.begin(), ops.end(), "Expand") == 1);
}

TEST_CASE("every operation is exported, or refused with a reason") {
  for (const char* name : registered_ops()) {
    INFO(name);
    const std::string op = name;
    if (op == "captured_loss" || op.starts_with("test_")) continue;  // made by programs
    CHECK(nn::onnx::operators().contains(op) != nn::onnx::refusals().contains(op));
  }
}

TEST_CASE("layers are exported, or refused by name") {
  const TemporaryFolder folder;
  const std::string path = folder.path("model.onnx");
  for (const testing::OnnxCase& one : testing::onnx_layers()) {
    INFO(one.layer);
    const auto run = [&] { nn::export_onnx(*one.module, one.example, path); };
    if (one.layer == "EmbeddingBag")
      CHECK(throws(run, "export_onnx: div: its operand (3, 1) is not computed from the inputs"));
    else if (one.layer == "LSTM with projections")
      CHECK(throws(run, "export_onnx: lstm: ONNX has no projection of states"));
    else
      CHECK_NOTHROW(run());
  }
}

TEST_CASE("an operation that no converter knows is refused with its name and module") {
  static const Op cube_op("test_cube", {.captures = Op::Captures::shared});
  const auto cube = [](const Var& x) {
    return x.tape().record(cube_op, {x}, mul(x.value(), mul(x.value(), x.value())), x.samples(),
                           [](const Tensor&, Adjoint&) {});
  };
  CHECK(refused(cube, "export_onnx: test_cube: no operator of ONNX is known for it"));
  nn::Sequential model{nn::Relu(), Function(cube)};
  CHECK(throws([&] { graph(model, zeros({2, 3})); }, "export_onnx: 1: test_cube: no operator"));
  CHECK_FALSE(refused([&](const Var& x) { return cube(x), x; }, ""));
  static const Op first("test_twice", {.captures = Op::Captures::shared}), second("test_twice");
  CHECK(refused(
      [](const Var& x) {
        return x.tape().record(first, {x}, clone(x.value()), x.samples(),
                               [](const Tensor&, Adjoint&) {});
      },
      "export_onnx: test_twice: several operations have this name"));
}

TEST_CASE("values from elsewhere, and those that combine samples, are refused") {
  CHECK(refused(
      [](const Var& x) {
        return x + x.tape().input(zeros({x.shape()[0], 3}));
      },
      "export_onnx: add: its operand (2, 3) is not computed from the inputs"));
  CHECK(refused(
      [](const Var& x) {
        const double rows = static_cast<double>(x.shape()[0]);
        return x + x.tape().constant(full({}, rows));
      },
      "export_onnx: constant_1: differs between two batches"));
  CHECK(refused(
      [](const Var& x) {
        return x + x.tape().constant(full({}, x.value().at({0, 0})));
      },
      "export_onnx: constant_1: differs between two batches"));
  CHECK(refused([](const Var& x) { return x - sum(x, {0}, true); },
                "export_onnx: sum: combines samples: result (1, 3)"));
  CHECK(refused([](const Var& x) { return sum(x, {0}); },
                "export_onnx: sum: combines samples: result (3)"));
  CHECK(refused([](const Var& x) { return x.tape().constant(zeros({2})); },
                "export_onnx: the result (2) has no row for each sample"));
  CHECK(refused([](const Var& x) { return cast(x, Dtype::f64); },
                "export_onnx: cast: the file is in f32"));
  nn::Linear wide(3, 2);
  wide.to(Dtype::f64);
  CHECK(throws([&] { graph(wide, zeros({2, 3}, Dtype::f64)); }, "convert the model by to("));
}

TEST_CASE("a refused model leaves the file as it was, and its parameters trainable") {
  const TemporaryFolder folder;
  folder.write("model.onnx", "before");
  nn::LSTM model(3, 2, {.batch_first = true, .proj_size = 1});
  CHECK(throws(
      [&] {
        nn::export_onnx(model, zeros({2, 4, 3}), folder.path("model.onnx"));
      },
      "no projection"));
  CHECK(contents(folder.path("model.onnx")) == "before");
  for (const Parameter* parameter : model.parameters()) CHECK(parameter->trainable);
  nn::Relu relu;
  CHECK(throws<SystemFailure>(
      [&] {
        nn::export_onnx(relu, zeros({1, 2}), folder.path("none/model.onnx"));
      },
      "none"));
}

TEST_CASE("a file above 2 GiB is refused before it is written") {
  nn::onnx::Graph g;
  g.initializer("table", Tensor::empty({1 << 29}));
  CHECK(throws([&] { g.write("/nowhere/model.onnx"); },
               "export_onnx: /nowhere/model.onnx: the model has 21474836"));
}

TEST_CASE("quantised layers are refused by name") {
  PublicRandom random(1);
  nn::QuantizedLinear model(random_blocks(random, BlockFormat::q8_0, 2, 32), std::nullopt);
  CHECK(throws(
      [&] {
        graph(model, zeros({1, 32}));
      },
      "export_onnx: quantized_linear: quantised weights: load the model with f32 weights"));
}

TEST_CASE("names in a file are different") {
  nn::Linear model(3, 2);
  const auto run = [&](const nn::OnnxNames& names) {
    nn::export_onnx(model, zeros({1, 3}), "/nowhere/model.onnx", names);
  };
  CHECK(throws(
      [&] {
        run({{"bias"}, "y"});
      },
      "export_onnx: two values of the file are called bias"));
  CHECK(throws([&] { run({{"x"}, "x"}); }, "export_onnx: two values of the file are called x"));
}

TEST_CASE("rows of tokens have any length where constants follow from it") {
  const TemporaryFolder folder;
  // The size of axis 1 of the input, or its name.
  const auto length = [&](nn::TokenModel& model, std::int64_t tokens) {
    nn::export_onnx(model, {.ids = zeros({1, tokens}, Dtype::i64)}, folder.path("model.onnx"));
    const Message axis = Message(contents(folder.path("model.onnx")))
                             .message(graph_of_model)
                             .message(input)
                             .message(2)
                             .message(1)
                             .message(2)
                             .message(1, 1);
    return axis.all(2).empty() ? axis.text(1) : axis.text(2);
  };
  Placed placed;
  CHECK(length(placed, 6) == "t");
  CHECK(length(placed, 3) == "3");
  // A number that does not follow, and a model of rows of one length.
  Placed averaged([](const Var& x) { return x * (1.0 / static_cast<double>(x.shape()[1])); });
  CHECK(length(averaged, 6) == "6");
  Placed whole([](const Var& x) {
    check(x.shape()[1] == 6, "rows of six");
    return x;
  });
  CHECK(length(whole, 6) == "6");
}

TEST_CASE("models of tokens name their inputs") {
  Tagger model;
  const TemporaryFolder folder;
  const Tensor ids = Tensor::from(std::vector<std::int64_t>{1, 2, 3}, {1, 3});
  nn::export_onnx(model, nn::TokenExamples{.ids = ids, .mask = ids}, folder.path("model.onnx"));
  const Message g = Message(contents(folder.path("model.onnx"))).message(graph_of_model);
  CHECK(g.each(input, value_name) == Names{"input_ids", "attention_mask"});
  CHECK(g.each(output, value_name) == Names{"logits"});
  CHECK(throws(
      [&] {
        nn::export_onnx(model, {ids, ids}, {}, folder.path("x"), {});
      },
      "export_onnx: 1 names for 2 inputs"));
  CHECK(throws(
      [&] {
        nn::export_onnx(model, nn::TokenExamples{.ids = ids, .mask = zeros({2, 3})},
                        folder.path("x"));
      },
      "export_onnx: input attention_mask: an example of shape (2, 3)"));
}
