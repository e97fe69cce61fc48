// The padding of bags and tables.
#include "nn/layers/embedding_bag.h"

#include "autograd/ops.h"
#include "autograd/sink.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

const Tensor ids = Tensor::from(std::vector<std::int64_t>{0, 3, 3}, {1, 3});

// The bag of ids and the table's gradient, by both forms of forward().
std::vector<float> forward_and_gradient(nn::BagMode mode, std::int64_t padding, bool offsets) {
  nn::manual_seed(1);
  nn::EmbeddingBag bag(4, 2, {.mode = mode, .padding = padding});
  Tape tape;
  const Var y = offsets ? bag.forward(tape, *ids.view_as({3}),
                                      Tensor::from(std::vector<std::int64_t>{0}, {1}))
                        : bag(tape.input(ids));
  std::vector<float> all = y.value().to_vector<float>();
  SumSink sums;
  tape.backward(sum_per_sample(y), sums);
  for (const float slope : sums.gradients()[0].second.to_vector<float>()) all.push_back(slope);
  for (const float value : bag.weight->value.to_vector<float>()) all.push_back(value);
  return all;
}

}  // namespace

TEST_CASE("a bag's padding may count from the end, and is left out and not trained") {
  for (const nn::BagMode mode : {nn::BagMode::sum, nn::BagMode::mean, nn::BagMode::max}) {
    for (const bool offsets : {false, true}) {
      const std::vector<float> from_start = forward_and_gradient(mode, 3, offsets);
      CHECK(forward_and_gradient(mode, -1, offsets) == from_start);
      // [y, gradient, table]: one id is left, whatever the mode; row 3 starts at zero.
      const std::vector<float> gradient(from_start.begin() + 2, from_start.begin() + 10);
      CHECK(gradient == std::vector<float>{1, 1, 0, 0, 0, 0, 0, 0});
      CHECK((from_start[0] == from_start[10] && from_start[16] == 0 && from_start[17] == 0));
    }
  }
}

TEST_CASE("a padding that is no row of the table is refused, by layers and functions") {
  for (const std::int64_t padding : {4, 9, -5, -100}) {
    const auto refused = [&](const char* op, const auto& call) {
      return throws(call, fmt::format("{}: padding {} of a table of 4 rows", op, padding));
    };
    Parameter table(full({4, 2}, 1));
    Tape tape;
    const Var rows = tape.use(table);
    CHECK(refused("EmbeddingBag", [&] { nn::EmbeddingBag(4, 2, {.padding = padding}); }));
    CHECK(refused("Embedding", [&] { nn::Embedding(4, 2, {.padding = padding}); }));
    CHECK(refused("embedding", [&] { embedding(rows, tape.input(ids), padding); }));
    CHECK(refused("embedding_bag", [&] {
      nn::embedding_bag(rows, tape.input(ids), std::nullopt, {.padding = padding});
    }));
    CHECK(refused("embedding_bag", [&] {
      nn::embedding_bag(rows, *ids.view_as({3}), Tensor::from(std::vector<std::int64_t>{0}, {1}),
                        std::nullopt, {.padding = padding});
    }));
  }
}

TEST_CASE("ids count from the start, whatever the padding") {
  Parameter table(full({4, 2}, 1));
  Tape tape;
  const Var minus = tape.input(Tensor::from(std::vector<std::int64_t>{0, -1, 3}, {1, 3}));
  CHECK(throws([&] { embedding(tape.use(table), minus, -1); }, "embedding: id -1 in a table of 4"));
  CHECK(throws([&] { nn::embedding_bag(tape.use(table), minus, std::nullopt, {.padding = -1}); },
               "embedding: id -1 in a table of 4"));
}
