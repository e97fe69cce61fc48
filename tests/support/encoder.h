// A text encoder with BERT's names and order of layers (Devlin et al. 2019), of any size, to test
// and measure fine-tuning.
#pragma once

#include <string>
#include <vector>

#include "autograd/ops.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/layers.h"
#include "nn/models/pretrained_model.h"

namespace sotto {

struct EncoderOptions {
  std::int64_t words = 11, positions = 8, width = 8, heads = 2, blocks = 2, hidden = 12,
               classes = 3;
  bool pooler = true;
  bool pooled = true;  // false: the classifier reads the first position, whatever pooler there is
};

// Named children in a std::unique_ptr<nn::Module>.
class Children : public nn::Module {
 public:
  template <class M>
  void add(const std::string& name, M module) {
    modules_.emplace_back(name, std::make_unique<M>(std::move(module)));
  }
  Var run(const std::string& name, const Var& x) { return (*at(name))(x); }
  std::unique_ptr<nn::Module>& at(const std::string& name) {
    for (auto& [own, module] : modules_) {
      if (own == name) return module;
    }
    fail(fmt::format("no child {}", name));
  }
  void visit(const nn::Visitor& visitor) override {
    for (auto& [name, module] : modules_) visitor(name, module);
  }

 private:
  std::vector<std::pair<std::string, std::unique_ptr<nn::Module>>> modules_;
};

// x after the norm of x + dense(hidden).
class EncoderOutput final : public Children {
 public:
  EncoderOutput(std::int64_t in, std::int64_t width) {
    add("dense", nn::Linear(in, width));
    add("LayerNorm", nn::LayerNorm({width}));
  }
  Var forward(const Var&) override { refuse_one_input(2); }
  Var forward(const Var& hidden, const Var& x) {
    return run("LayerNorm", run("dense", hidden) + x);
  }
};

class EncoderBlock final : public nn::Module {
 public:
  explicit EncoderBlock(const EncoderOptions& o)
      : attended(o.width, o.width), output(o.hidden, o.width), heads_(o.heads) {
    for (const char* name : {"query", "key", "value"}) self.add(name, nn::Linear(o.width, o.width));
    intermediate.add("dense", nn::Linear(o.width, o.hidden));
  }
  Var forward(const Var& x) override {
    const Shape& s = x.shape();
    const auto heads = [&](const char* name) {
      const Var y = self.run(name, x);
      return permute(reshape(y, {s[0], s[1], heads_, s[2] / heads_}), {0, 2, 1, 3});
    };
    const Var seen = attention(heads("query"), heads("key"), heads("value"));
    const Var y = attended.forward(reshape(permute(seen, {0, 2, 1, 3}), s), x);
    return output.forward(gelu(intermediate.run("dense", y)), y);
  }
  void visit(const nn::Visitor& visitor) override {
    visitor("attention.self", self);
    visitor("attention.output", attended);
    visitor("intermediate", intermediate);
    visitor("output", output);
  }

 private:
  struct Parts final : Children {
    Var forward(const Var& x) override { return x; }
  };
  Parts self, intermediate;
  EncoderOutput attended, output;
  std::int64_t heads_;
};

class Encoder final : public nn::TokenModel {
 public:
  explicit Encoder(const EncoderOptions& o = {}) : options_(o) {
    embeddings.add("word_embeddings", nn::Embedding(o.words, o.width));
    embeddings.add("position_embeddings", nn::Embedding(o.positions, o.width));
    embeddings.add("LayerNorm", nn::LayerNorm({o.width}));
    for (std::int64_t k = 0; k < o.blocks; ++k) blocks.add(std::to_string(k), EncoderBlock(o));
    if (o.pooler) head.add("pooler.dense", nn::Linear(o.width, o.width));
    head.add("classifier", nn::Linear(o.width, o.classes));
  }
  nn::ModelParts parts() const override {
    return {.embeddings = {"embeddings"},
            .blocks = "encoder.layer",
            .block_count = options_.blocks,
            .head = options_.pooler ? std::vector<std::string>{"pooler", "classifier"}
                                    : std::vector<std::string>{"classifier"}};
  }
  using TokenModel::forward;
  Var forward(const nn::TokenInputs& inputs) override {
    const Var& ids = inputs.ids;
    std::vector<std::int64_t> all;
    for (std::int64_t n = 0; n < ids.shape()[0]; ++n) {
      for (std::int64_t t = 0; t < ids.shape()[1]; ++t) all.push_back(t);
    }
    const Var at = ids.tape().input(Tensor::from(all, ids.shape()));
    Var x = embeddings.run("word_embeddings", ids) + embeddings.run("position_embeddings", at);
    x = embeddings.run("LayerNorm", x);
    for (std::int64_t k = 0; k < options_.blocks; ++k) x = blocks.run(std::to_string(k), x);
    Var first = select(x, 1, 0);
    if (options_.pooler && options_.pooled) first = tanh(head.run("pooler.dense", first));
    return head.run("classifier", first);
  }
  void visit(const nn::Visitor& visitor) override {
    visitor("embeddings", embeddings);
    visitor("encoder.layer", blocks);
    head.visit(visitor);
  }

 private:
  struct Parts final : Children {
    Var forward(const Var& x) override { return x; }
  };
  EncoderOptions options_;
  Parts embeddings, blocks, head;
};

}  // namespace sotto
