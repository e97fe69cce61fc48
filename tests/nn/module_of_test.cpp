#include "nn/module_of.h"

#include "autograd/ops.h"
#include "autograd/sink.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

// A model that joins the last valid state of a sequence of ids with further features of the sample.
class Tagger final : public nn::ModuleOf<Tensor, Var> {
 public:
  Var forward(const Var& ids, const Tensor& lengths, const Var& features) override {
    const nn::RecurrentOutputs read = gru_.run(embedding_(ids), {.lengths = lengths});
    return out_(dropout(concat({select(read.h, 0, 0), features}, 1), 0.3));
  }
  void visit(const nn::Visitor& visitor) override {
    visitor("embedding", embedding_);
    visitor("gru", gru_);
    visitor("out", out_);
  }

 private:
  nn::Embedding embedding_{6, 4};
  nn::GRU gru_{4, 3, {.batch_first = true}};
  nn::Linear out_{5, 2};
};

struct Inputs {
  Tensor ids = Tensor::from(std::vector<std::int64_t>{1, 2, 0, 3, 4, 5}, {2, 3});
  Tensor lengths = Tensor::from(std::vector<std::int64_t>{2, 3}, {2});
  Tensor features = Tensor::from({0.5, -1, 2, 0.25}, {2, 2}, Dtype::f32);
};

// Returns the results and all gradients, including those of the inputs, in order.
std::vector<float> run(Tagger& tagger, const Inputs& inputs, const TapeOptions& options = {}) {
  Tape tape(options);
  const Var features = tape.input(inputs.features, 0, true);
  const Var y = tagger(tape.input(inputs.ids), inputs.lengths, features);
  std::vector<float> all = y.value().to_vector<float>();
  SumSink sink;
  tape.backward(sum_per_sample(square(y)), sink);
  const auto append = [&](const Tensor& x) {
    const std::vector<float> values = x.to_vector<float>();
    all.insert(all.end(), values.begin(), values.end());
  };
  append(tape.grad(features));
  for (const Parameter* parameter : tagger.parameters()) {
    for (const auto& [of, gradient] : sink.gradients()) {
      if (of == parameter) append(gradient);
    }
  }
  return all;
}

}  // namespace

TEST_CASE("a module of several inputs is called with them, and shows its parameters") {
  nn::manual_seed(4);
  Tagger tagger;
  CHECK(tagger.parameters().size() == 1 + 4 + 2);
  Inputs inputs;
  const std::vector<float> all = run(tagger, inputs, {.training = false});
  CHECK(tagger.unshown().empty());
  // Ids beyond a sample's length do not change the result.
  inputs.ids.data<std::int64_t>()[2] = 5;
  CHECK(run(tagger, inputs, {.training = false}) != std::vector<float>{});
  const std::vector<float> other = run(tagger, inputs, {.training = false});
  CHECK(std::vector<float>(other.begin(), other.begin() + 4) ==
        std::vector<float>(all.begin(), all.begin() + 4));
}

TEST_CASE("a module of several inputs runs again in backward with all of them") {
  nn::manual_seed(4);
  Tagger tagger;
  const std::vector<float> kept = run(tagger, {});
  tagger.set_recomputing(true);
  CHECK(run(tagger, {}) == kept);
}

TEST_CASE("a module of several inputs has a precision, and a hook sees it") {
  nn::manual_seed(4);
  Tagger tagger;
  tagger.set_precision(Dtype::bf16);
  int calls = 0;
  const nn::ModuleHook hook([&](const nn::Module& module, const Var&, const Var& y) {
    if (&module != &tagger) return;
    ++calls;
    CHECK(y.dtype() == Dtype::bf16);
  });
  const Inputs inputs;
  Tape tape;
  tagger(tape.input(inputs.ids), inputs.lengths, tape.input(inputs.features));
  CHECK(calls == 1);
}

TEST_CASE("a module of several inputs called with one says how many it takes") {
  Tagger tagger;
  Tape tape;
  const Var ids = tape.input(Inputs().ids);
  nn::Module& module = tagger;
  CHECK(throws([&] { module(ids); }, "Tagger: takes 3 inputs, and was called with one"));
}
