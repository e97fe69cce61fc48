// What each tuning trains, and that what it freezes costs nothing and never moves.
#include <algorithm>
#include <set>

#include "autograd/sink.h"
#include "core/allocator/allocator.h"
#include "core/random/philox.h"
#include "dp/clipping/clipper.h"
#include "nn/init.h"
#include "nn/models/tuning.h"
#include "tests/support/catch.h"
#include "tests/support/encoder.h"
#include "tests/support/throws.h"

using namespace sotto;
using nn::parse_tuning;

namespace {

constexpr std::int64_t samples = 4, length = 6;

Tensor words(std::uint64_t seed = 3) {
  PublicRandom random(seed);
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < samples * length; ++i)
    ids.push_back(static_cast<std::int64_t>(random.uniform() * 10.99));
  return Tensor::from(ids, {samples, length});
}

Tensor some_labels() { return Tensor::from(std::vector<std::int64_t>{0, 2, 1, 1}, {samples}); }

// An encoder in f64 without special values: LoRA's second factors and all biases are random.
Encoder encoder(const std::string& tuning, const EncoderOptions& options = {}) {
  nn::manual_seed(5);
  Encoder model(options);
  model.to(Dtype::f64);
  apply_tuning(model, parse_tuning(tuning));
  PublicRandom random(6);
  for (const auto& [name, parameter] : model.named_parameters()) {
    std::vector<double> values = parameter->value.to_vector<double>();
    for (double& value : values) value += 0.3 * random.normal();
    parameter->value = Tensor::from(values, parameter->value.shape());
  }
  return model;
}

std::vector<double> logits(nn::TokenModel& model) {
  Tape tape({.training = false});
  return to_dtype(model(tape.input(words())).value(), Dtype::f64).to_vector<double>();
}

using Rows = std::map<std::string, std::vector<double>>;

// Each trained parameter's gradients, sample by sample.
Rows together(nn::TokenModel& model) {
  Tape tape({.seed = 2});
  PerSampleGradSink sink;
  tape.backward(cross_entropy(model(tape.input(words())), some_labels()), sink);
  Rows rows;
  for (const auto& [name, parameter] : model.named_parameters()) {
    for (const auto& [known, gradient] : sink.all()) {
      if (known == parameter) rows[name] = to_dtype(gradient, Dtype::f64).to_vector<double>();
    }
  }
  return rows;
}

Rows alone(nn::TokenModel& model) {
  Rows rows;
  for (std::int64_t n = 0; n < samples; ++n) {
    Tape tape({.seed = 2, .first_row = n});
    SumSink sink;
    const Var y = model(tape.input(words().slice(0, n, n + 1)));
    tape.backward(cross_entropy(y, some_labels().slice(0, n, n + 1)), sink);
    for (const auto& [name, parameter] : model.named_parameters()) {
      for (const auto& [known, gradient] : sink.gradients()) {
        if (known != parameter) continue;
        for (const double g : gradient.to_vector<double>()) rows[name].push_back(g);
      }
    }
  }
  return rows;
}

std::set<std::string> names_of(const Rows& rows) {
  std::set<std::string> names;
  for (const auto& [name, row] : rows) names.insert(name);
  return names;
}

using Names = std::set<std::string>;

Names trained(const nn::TuningSummary& summary) {
  return {summary.trained_names.begin(), summary.trained_names.end()};
}

// The names of all parameters of an encoder whose endings the function accepts, and the head's.
template <class Accept>
Names head_and(nn::Module& model, Accept&& accept) {
  Names names;
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (name.starts_with("pooler.") || name.starts_with("classifier.") || accept(name))
      names.insert(name);
  }
  return names;
}

constexpr const char* tunings[] = {"all",
                                   "all,embeddings=frozen",
                                   "head",
                                   "bitfit",
                                   "norms",
                                   "last:1",
                                   "bitfit,last:1",
                                   "norms,last:1",
                                   "lora:2,last:1",
                                   "lora:2",
                                   "lora:2,targets=all-linear,rslora",
                                   "lora:3,targets=word_embeddings|dense",
                                   "lora:2,alpha=1,targets=query,dropout=0.3"};

}  // namespace

TEST_CASE("a tuning trains what its name says") {
  Encoder model;
  const auto trains = [&](const char* text) {
    return trained(apply_tuning(model, parse_tuning(text)));
  };
  const Names all = head_and(model, [](const std::string&) { return true; });
  CHECK(all.size() == 3 + 1 + 2 * 16 + 4);
  CHECK(trains("all") == all);
  CHECK(trains("head") ==
        Names{"pooler.dense.weight", "pooler.dense.bias", "classifier.weight", "classifier.bias"});
  CHECK(trains("all,embeddings=frozen") ==
        head_and(model, [](const std::string& name) { return !name.starts_with("embeddings."); }));
  CHECK(trains("bitfit") ==
        head_and(model, [](const std::string& name) { return name.ends_with(".bias"); }));
  CHECK(trains("bitfit,embeddings=frozen").contains("encoder.layer.0.output.dense.bias"));
  CHECK(!trains("bitfit,embeddings=frozen").contains("embeddings.LayerNorm.bias"));
  CHECK(trains("norms") == head_and(model, [](const std::string& name) {
          return name.find("LayerNorm") != std::string::npos;
        }));
  CHECK(trains("last:1") == head_and(model, [](const std::string& name) {
          return name.starts_with("encoder.layer.1.");
        }));
  const auto in_last = [](const std::string& name) { return name.starts_with("encoder.layer.1."); };
  CHECK(trains("bitfit,last:1") == head_and(model, [&](const std::string& name) {
          return in_last(name) && name.ends_with(".bias");
        }));
  CHECK(trains("norms,last:1") == head_and(model, [&](const std::string& name) {
          return in_last(name) && name.find("LayerNorm") != std::string::npos;
        }));
  const auto last_lora = apply_tuning(model, parse_tuning("lora:2,last:1"));
  CHECK(last_lora.adapted == std::vector<std::string>{"encoder.layer.1.attention.self.query",
                                                      "encoder.layer.1.attention.self.value"});
  const auto lora = apply_tuning(model, parse_tuning("lora:2"));
  CHECK(trained(lora) == head_and(model, [](const std::string& name) {
          return name.find("query.lora_") != std::string::npos ||
                 name.find("value.lora_") != std::string::npos;
        }));
  CHECK(lora.adapted == std::vector<std::string>{"encoder.layer.0.attention.self.query",
                                                 "encoder.layer.0.attention.self.value",
                                                 "encoder.layer.1.attention.self.query",
                                                 "encoder.layer.1.attention.self.value"});
  // Four products of (8 + 8) numbers of rank 2; a pooler of 8 x 8 + 8, a classifier of 3 x 8 + 3.
  CHECK(lora.trained == 4 * 2 * 16 + 72 + 27);
  CHECK(lora.trained_bytes == 4 * static_cast<std::size_t>(lora.trained));
  CHECK(lora.trained + lora.frozen == model.parameter_count());
}

TEST_CASE("a tuning after another keeps the layers' LoRA, trained or not") {
  Encoder model;
  apply_tuning(model, parse_tuning("head"));
  apply_tuning(model, parse_tuning("lora:2"));
  const auto again = apply_tuning(model, parse_tuning("lora:2"));
  CHECK(again.adapted.size() == 4);
  CHECK(apply_tuning(model, parse_tuning("head")).trained == 72 + 27);
}

TEST_CASE("per-sample gradients with frozen parts are those of each sample alone") {
  for (const char* tuning : tunings) {
    for (const bool pooler : {true, false}) {
      INFO(tuning << ", pooler " << pooler);
      Encoder model = encoder(tuning, {.pooler = pooler});
      const Rows rows = together(model), each = alone(model);
      CHECK(names_of(rows) == names_of(each));
      for (const auto& [name, row] : each) {
        INFO(name);
        REQUIRE(row.size() == rows.at(name).size());
        for (std::size_t i = 0; i < row.size(); ++i)
          REQUIRE(rows.at(name)[i] == Approx(row[i]).epsilon(1e-9).margin(1e-12));
      }
    }
  }
}

TEST_CASE("frozen parameters have no gradient, and trained ones all have") {
  for (const char* tuning : tunings) {
    INFO(tuning);
    Encoder model = encoder(tuning);
    CHECK(names_of(together(model)) == trained(summary_of_tuning(model)));
  }
}

TEST_CASE("norms under every norm method and both passes are those of the samples alone") {
  for (const char* tuning : tunings) {
    Encoder model = encoder(tuning);
    std::vector<double> expected(samples);
    for (const auto& [name, row] : alone(model)) {
      for (std::size_t i = 0; i < row.size(); ++i)
        expected[i / (row.size() / samples)] += row[i] * row[i];
    }
    for (const NormMethod method :
         {NormMethod::automatic, NormMethod::ghost, NormMethod::materialize}) {
      for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
        INFO(tuning << ", method " << static_cast<int>(method));
        Clipper clipper(flat_group(model.parameters(), 1), {.norm_method = method}, passes);
        Tape tape({.private_data = true, .seed = 2});
        clipper.add(tape, cross_entropy(model(tape.input(words())), some_labels()));
        for (std::size_t n = 0; n < samples; ++n)
          CHECK(clipper.statistics().norms[0][n] == Approx(std::sqrt(expected[n])).epsilon(1e-6));
      }
    }
  }
}

TEST_CASE("a model with LoRA starts as it was, and merged gives the same") {
  nn::manual_seed(5);
  Encoder model;
  model.to(Dtype::f64);
  const std::vector<double> before = logits(model);
  const nn::NamedParameters names = model.named_parameters();
  apply_tuning(model, parse_tuning("lora:2,targets=all-linear"));
  CHECK(logits(model) == before);
  Encoder tuned = encoder("lora:3,targets=word_embeddings|dense|query");
  const std::vector<double> unmerged = logits(tuned);
  for (const auto& [path, layer] : lora_layers(tuned)) layer->merge();
  const std::vector<double> merged = logits(tuned);
  for (const auto& [path, layer] : lora_layers(tuned)) layer->unmerge();
  CHECK(logits(tuned) == unmerged);
  const std::map<std::string, Tensor> merged_values = merged_tensors(tuned);
  CHECK(logits(tuned) == unmerged);
  merge_lora(tuned);
  CHECK(logits(tuned) == merged);
  for (std::size_t i = 0; i < merged.size(); ++i)
    CHECK(merged[i] == Approx(unmerged[i]).epsilon(1e-12).margin(1e-12));
  CHECK(lora_layers(tuned).empty());
  const nn::NamedParameters back = tuned.named_parameters();
  REQUIRE(back.size() == names.size());
  CHECK(merged_values.size() == back.size());
  for (std::size_t i = 0; i < back.size(); ++i) {
    CHECK(back[i].first == names[i].first);
    CHECK(merged_values.at(back[i].first).to_vector<double>() ==
          back[i].second->value.to_vector<double>());
  }
}

// In units of one activation [n, t, width], with blocks that keep, where all is trained, their
// input, three projections, the mixed values, the inputs of both norms, the output of the first
// and two times the hidden units, which are four times as wide. The classifier reads a view of the
// last block's output and keeps that.
TEST_CASE("the tape keeps only the activations that the trained parts need") {
  constexpr std::int64_t n = 4, t = 32, width = 64;
  constexpr double unit = n * t * width * sizeof(float);
  const Tensor ids = Tensor::from(std::vector<std::int64_t>(n * t, 3), {n, t});
  const auto kept = [&](const char* tuning, bool private_data) {
    Encoder model({.positions = t, .width = width, .hidden = 4 * width, .pooler = false});
    apply_tuning(model, parse_tuning(tuning));
    Tape tape({.private_data = private_data});
    const std::size_t before = allocator(cpu).statistics().current;
    const Var y = model(tape.input(ids));
    return static_cast<double>(allocator(cpu).statistics().current - before) / unit;
  };
  const std::pair<const char*, double> expected[] = {
      {"head", 1},
      {"last:1", 1 + 16},
      // Nothing below the first norm of block 0.
      {"norms,embeddings=frozen", 1 + 6 + 9},
      {"bitfit,embeddings=frozen", 1 + 9 + 9},
      // The shift of the embeddings' norm does not need the norm's input.
      {"bitfit", 1 + 9 + 9},
      {"lora:1", 1 + 10 + 10},
      {"all", 1 + 16 + 16 + 1}};
  for (const auto& [tuning, units] : expected) {
    INFO(tuning);
    CHECK(kept(tuning, false) == Approx(units).epsilon(0.02).margin(0.3));
    CHECK(kept(tuning, true) == kept(tuning, false));
  }
}

TEST_CASE("statistics stay frozen whatever is trained") {
  struct Model final : nn::Module {
    Var forward(const Var& x) override { return body(columns(x)); }
    void visit(const nn::Visitor& visitor) override {
      visitor("columns", columns);
      visitor("body", body);
    }
    nn::Standardize columns{3};
    nn::Linear body{3, 2};
  } model;
  const nn::TuningSummary summary = apply_tuning(model, {}, {});
  CHECK(trained(summary) == Names{"body.weight", "body.bias"});
  CHECK(summary.frozen == 6);
  CHECK(trained(nn::train_only(model, "weight|mean")) == Names{"body.weight"});
  CHECK(trained(nn::train_only(model, ".*")) == Names{"body.weight", "body.bias"});
  CHECK(throws([&] { nn::train_only(model, "columns.*"); }, "there are body.bias, body.weight"));
}

TEST_CASE("a tuning that fits nothing is refused, with what there is") {
  Encoder model;
  const auto refused = [&](const char* text, const char* part) {
    return throws([&] { apply_tuning(model, parse_tuning(text)); }, part);
  };
  CHECK(refused("lora:2,targets=c_attn",
                "\"c_attn\" fits no layer; there are classifier, embeddings.position_embeddings"));
  CHECK(refused("lora:2,targets=c_attn", "encoder.layer.*.attention.self.query"));
  CHECK(refused("lora:2,targets=classifier", "fits no layer"));
  CHECK(refused("last:3", "the last 3 blocks of a model that has 2"));
  CHECK(refused("norms,last:3", "the last 3 blocks of a model that has 2"));
  CHECK(refused("lora:2,last:1,targets=word_embeddings", "no layer in the last 1 blocks"));
  CHECK(throws([&] { apply_tuning(model, {.head = {"score"}}, {}); }, "no part \"score\""));
  CHECK(throws([&] { apply_tuning(model, {}, parse_tuning("head")); }, "no head of its own"));
  struct Held final : nn::Module {
    Var forward(const Var& x) override { return inner(x); }
    void visit(const nn::Visitor& visitor) override { visitor("inner", inner); }
    nn::Linear inner{3, 3};
  } held;
  CHECK(throws([&] { apply_tuning(held, {}, parse_tuning("lora:1,targets=inner")); },
               "cannot be replaced"));
}

namespace {

// Puts quantised layers in the places of tables and linear layers in front of the head.
void quantize(nn::Module& module) {
  const auto blocks = [](std::int64_t rows) {
    const std::int64_t bytes = row_bytes("test", BlockFormat::q8_0, 32);
    return BlockMatrix{BlockFormat::q8_0, {rows, 32}, zeros({rows, bytes}, Dtype::u8)};
  };
  module.visit(nn::Visitor(
      [](const std::string&, Parameter&) {},
      [&](const std::string&, nn::Module& child) { quantize(child); },
      [&](const std::string& name, std::unique_ptr<nn::Module>& child) {
        quantize(*child);
        if (const auto* table = dynamic_cast<const nn::Embedding*>(child.get()))
          child = std::make_unique<nn::QuantizedEmbedding>(blocks(table->weight->value.size(0)));
        else if (dynamic_cast<const nn::Linear*>(child.get()) && name != "classifier")
          child = std::make_unique<nn::QuantizedLinear>(blocks(32), zeros({32}));
      }));
}

}  // namespace

TEST_CASE("a quantised base is tuned by what is beside it, and never trained") {
  Encoder model({.positions = length, .width = 32, .hidden = 32, .pooler = false});
  quantize(model);
  const nn::TuningSummary lora = apply_tuning(model, parse_tuning("lora:2,targets=all-linear"));
  CHECK(lora.adapted.size() == 12);
  CHECK(lora.trained == 12 * 2 * 64 + 3 * 32 + 3);
  CHECK(logits(model).size() == 3 * samples);
  const std::int64_t weights = 12 * 32 * 32 + (11 + length) * 32, biases = 12 * 32, norms = 10 * 32;
  CHECK(lora.frozen == weights + biases + norms);
  CHECK(lora.frozen_bytes == static_cast<std::size_t>(weights / 32 * 34 + 4 * (biases + norms)));
  CHECK(apply_tuning(model, parse_tuning("norms")).trained == norms + 3 * 32 + 3);
  CHECK(throws([&] { apply_tuning(model, parse_tuning("last:1")); },
               "encoder.layer.1.attention.self.query.base.weight is quantised"));
  CHECK(throws([&] { apply_tuning(model, parse_tuning("all")); },
               "embeddings.word_embeddings.weight is quantised"));
  const std::map<std::string, Tensor> merged = merged_tensors(model);
  CHECK(merged.at("encoder.layer.0.intermediate.dense.weight").shape() == Shape{32, 32});
  CHECK(merged.contains("encoder.layer.0.intermediate.dense.bias"));
  CHECK(merged.size() == static_cast<std::size_t>(12 * 2 + 2 + 10 + 2));
}
