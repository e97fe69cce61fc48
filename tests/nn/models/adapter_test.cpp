// Adapters in PEFT's files: written and read again, and malformed ones refused.
#include <cmath>
#include <fstream>
#include <set>

#include "core/io/atomic_file.h"
#include "core/io/safetensors.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "nn/models/adapter.h"
#include "nn/models/adapter_config.h"
#include "tests/support/catch.h"
#include "tests/support/encoder.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/throws.h"

using namespace sotto;
using nn::load_adapter;
using nn::parse_tuning;
using nn::save_adapter;

namespace {

const std::vector<std::string> tables{
    "known embeddings.word_embeddings.weight\n"
    "prefix bert.\n"
    "embeddings.** =\n"
    "encoder.layer.*.intermediate.dense.weight = transposed\n"
    "encoder.** =\n"
    "pooler.dense.{weight,bias} =\n"
    "classifier.{weight,bias} = head\n",
    "known embeddings.word_embeddings.weight\n"
    "prefix other.\n"
    "blocks.*.q.weight  encoder.layer.*.attention.self.query.weight\n"};
const std::vector<std::string> head{"pooler", "classifier"};
const std::string key_start = "base_model.model.";

void randomize(nn::Module& model, std::uint64_t seed) {
  PublicRandom random(seed);
  for (const auto& [name, parameter] : model.named_parameters()) {
    std::vector<double> values = parameter->value.to_vector<double>();
    for (double& value : values) value = 0.3 * random.normal();
    parameter->value = Tensor::from(values, parameter->value.shape());
  }
}

Encoder base() {
  Encoder model;
  model.to(Dtype::f64);
  randomize(model, 7);
  return model;
}

std::vector<double> logits(Encoder& model) {
  Tape tape({.training = false});
  const Tensor ids = Tensor::from(std::vector<std::int64_t>{1, 5, 2, 9, 0, 3, 3, 8}, {2, 4});
  return model(tape.input(ids)).value().to_vector<double>();
}

// A model whose LoRA and head are random, and whose other weights are those of base().
Encoder tuned(const std::string& tuning) {
  Encoder model = base();
  apply_tuning(model, parse_tuning(tuning));
  PublicRandom random(8);
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (!parameter->trainable) continue;
    std::vector<double> values;
    for (std::int64_t i = 0; i < parameter->value.numel(); ++i) values.push_back(random.normal());
    parameter->value = Tensor::from(values, parameter->value.shape());
  }
  return model;
}

std::string text_of(const std::string& folder) {
  return read_file(folder + "/adapter_config.json");
}

using Tensors = std::map<std::string, Tensor>;
using Shapes = std::map<std::string, Shape>;

// An adapter of one layer, [4, 2] x [2, 8] beside a query.
void write_adapter(const std::string& folder, const std::string& config, const Shapes& shapes) {
  Tensors tensors;
  for (const auto& [name, shape] : shapes) tensors[name] = full(shape, 0.5);
  save_safetensors(folder + "/adapter_model.safetensors", {.tensors = tensors});
  std::ofstream(folder + "/adapter_config.json") << config;
}

const std::string query = key_start + "bert.encoder.layer.1.attention.self.query";
const Shapes one_layer{{query + ".lora_A.weight", {2, 8}}, {query + ".lora_B.weight", {8, 2}}};
const std::string plain = R"({"peft_type": "LORA", "r": 2, "lora_alpha": 6})";

nn::LoraOptions options_of(const std::string& config) {
  Encoder model;
  const TemporaryFolder folder;
  write_adapter(folder.path(), config, one_layer);
  load_adapter({model, tables}, folder.path());
  return lora_layers(model)[0].second->options();
}

}  // namespace

TEST_CASE("an adapter that was written and read gives the same logits and trains the same") {
  for (const char* tuning : {"lora:3,alpha=7", "lora:2,targets=all-linear,rslora,dropout=0.25",
                             "lora:2,targets=word_embeddings|key"}) {
    INFO(tuning);
    Encoder model = tuned(tuning), again = base();
    const TemporaryFolder folder;
    save_adapter({model, tables, head}, folder.path(), {.base_model = "a/b"});
    const nn::AdapterReport report = load_adapter({again, tables}, folder.path());
    CHECK(logits(again) == logits(model));
    const nn::TuningSummary before = summary_of_tuning(model);
    CHECK(report.summary.trained_names == before.trained_names);
    CHECK(report.summary.adapted == before.adapted);
    CHECK(report.tensors.size() == before.trained_names.size());
    for (const auto& [name, parameter] : again.named_parameters()) {
      if (name == "classifier.weight")
        CHECK(report.tensors.at(key_start + name).parameter == parameter);
    }
    const auto &first = lora_layers(model)[0].second->options(),
               &second = lora_layers(again)[0].second->options();
    CHECK(second.scale() == first.scale());
    CHECK(second.dropout == first.dropout);
  }
}

TEST_CASE("an adapter has the names that its model was published with") {
  Encoder model = tuned("lora:2,targets=query|word_embeddings|encoder.layer.0.intermediate.dense");
  const TemporaryFolder folder;
  save_adapter({model, tables, head}, folder.path(), {.base_model = "a/b", .task_type = "SEQ_CLS"});
  std::set<std::string> names;
  for (const auto& [name, tensor] :
       load_safetensors(folder.path() + "/adapter_model.safetensors").tensors)
    names.insert(name);
  std::set<std::string> expected{key_start + "bert.embeddings.word_embeddings.lora_embedding_A",
                                 key_start + "bert.embeddings.word_embeddings.lora_embedding_B"};
  for (const std::string module :
       {"bert.encoder.layer.0.attention.self.query", "bert.encoder.layer.1.attention.self.query",
        "bert.encoder.layer.0.intermediate.dense"}) {
    expected.insert(key_start + module + ".lora_A.weight");
    expected.insert(key_start + module + ".lora_B.weight");
  }
  for (const std::string module : {"bert.pooler.dense", "classifier"}) {
    expected.insert(key_start + module + ".weight");
    expected.insert(key_start + module + ".bias");
  }
  CHECK(names == expected);
  const std::string config = text_of(folder.path());
  for (const char* part : {"\"fan_in_fan_out\": true", "\"bert.pooler\"", "\"classifier\"",
                           "\"task_type\": \"SEQ_CLS\"", "\"base_model_name_or_path\": \"a/b\"",
                           "\"bert.encoder.layer.0.intermediate.dense\"", "\"lora_alpha\": 4.0"})
    CHECK(config.find(part) != std::string::npos);
}

TEST_CASE("an adapter's names may be without prefix, or of another layout") {
  for (const char* module : {"bert.encoder.layer.1.attention.self.query",
                             "encoder.layer.1.attention.self.query", "other.blocks.1.q"}) {
    Encoder model;
    const TemporaryFolder folder;
    write_adapter(folder.path(), plain,
                  {{key_start + module + ".lora_A.weight", {2, 8}},
                   {key_start + module + ".lora_B.weight", {8, 2}}});
    const nn::AdapterReport report = load_adapter({model, tables}, folder.path());
    CHECK(report.summary.adapted ==
          std::vector<std::string>{"encoder.layer.1.attention.self.query"});
    CHECK(report.summary.trained == 32);
  }
}

TEST_CASE("an adapter is written by the newest names, and read by all") {
  std::vector<std::string> renamed = tables;
  renamed.push_back(
      "known embeddings.word_embeddings.weight\n"
      "prefix bert.\n"
      "blocks.*.q.{weight,bias}  encoder.layer.*.attention.self.query.{weight,bias}\n"
      "head.{weight,bias}  classifier.{weight,bias}  outside\n"
      "pooler.dense.{weight,bias} =\n");
  Encoder model = tuned("lora:2,targets=query"), again = base(), older = base();
  const TemporaryFolder folder, old;
  save_adapter({model, renamed, head}, folder.path());
  CHECK(text_of(folder.path()).find("\"bert.blocks.0.q\"") != std::string::npos);
  CHECK(load_adapter({again, renamed}, folder.path()).tensors.contains(key_start + "head.weight"));
  save_adapter({model, tables, head}, old.path());
  load_adapter({older, renamed}, old.path());
  CHECK(logits(again) == logits(model));
  CHECK(logits(older) == logits(model));
}

TEST_CASE("biases and modules of an adapter's file are trained, in the model's orientation") {
  Encoder model;
  const TemporaryFolder folder;
  Shapes shapes = one_layer;
  shapes[query + ".base_layer.bias"] = {8};
  shapes[query + ".base_layer.weight"] = {8, 8};  // PEFT's, of an adapted table: frozen
  shapes[key_start + "classifier.original_module.bias"] = {3};  // PEFT's, with bias "all"
  shapes[key_start + "bert.encoder.layer.0.intermediate.dense.weight"] = {8, 12};
  shapes[key_start + "bert.encoder.layer.0.intermediate.dense.bias"] = {12};
  write_adapter(folder.path(), plain, shapes);
  const nn::AdapterReport report = load_adapter({model, tables}, folder.path());
  CHECK(report.summary.trained_names ==
        std::vector<std::string>{"encoder.layer.0.intermediate.dense.weight",
                                 "encoder.layer.0.intermediate.dense.bias",
                                 "encoder.layer.1.attention.self.query.base.bias",
                                 "encoder.layer.1.attention.self.query.lora_a",
                                 "encoder.layer.1.attention.self.query.lora_b"});
  const auto& matrix =
      report.tensors.at(key_start + "bert.encoder.layer.0.intermediate.dense.weight");
  CHECK(matrix.transposed);
  CHECK(matrix.parameter->value.shape() == Shape{12, 8});
  const TemporaryFolder again;
  save_adapter({model, tables, head}, again.path());
  Encoder other;
  CHECK(load_adapter({other, tables}, again.path()).summary.trained_names ==
        report.summary.trained_names);
}

TEST_CASE("a convolution's adapter has PEFT's kernels") {
  const auto made = [] {
    return nn::Sequential{nn::Conv2d(2, 4, 3, {.padding = {1}}), nn::Tanh(), nn::Conv2d(4, 3, 1)};
  };
  nn::manual_seed(3);
  nn::Sequential model = made();
  model.to(Dtype::f64);
  apply_tuning(model, {}, parse_tuning("lora:2,targets=0|2"));
  randomize(model, 4);
  const TemporaryFolder folder;
  save_adapter({model}, folder.path());
  const Tensors tensors = load_safetensors(folder.path() + "/adapter_model.safetensors").tensors;
  CHECK(tensors.at(key_start + "0.lora_A.weight").shape() == Shape{2, 2, 3, 3});
  CHECK(tensors.at(key_start + "0.lora_B.weight").shape() == Shape{4, 2, 1, 1});
  nn::Sequential again = made();
  again.to(Dtype::f64);
  load_adapter({again}, folder.path());
  CHECK(lora_layers(again)[1].second->lora_a->value.to_vector<double>() ==
        lora_layers(model)[1].second->lora_a->value.to_vector<double>());
}

TEST_CASE("the scale is the config's, by patterns of paths") {
  CHECK(options_of(plain).scale() == 3);
  CHECK(
      options_of(R"({"peft_type": "LORA", "r": 2, "lora_alpha": 6, "use_rslora": true})").scale() ==
      Approx(6 / std::sqrt(2.0)));
  CHECK(options_of(R"({"peft_type": "LORA", "r": 4, "lora_alpha": 6, "rank_pattern":
      {"key": 8, "layer.1.attention.self.query": 2, "query": 16}})")
            .scale() == 3);
  CHECK(options_of(R"({"peft_type": "LORA", "r": 2, "lora_alpha": 6, "alpha_pattern":
      {"uery": 1, ".*\\.1\\..*": 10}, "target_modules": "all-linear", "lora_dropout": 0.5,
      "loftq_config": {}, "megatron_config": null, "use_dora": false, "qalora_group_size": 16})")
            .scale() == 5);
}

TEST_CASE("an adapter of another method is refused by the name of its field") {
  for (const char* field : {R"("use_dora": true)",
                            R"("layer_replication": [[0, 1]])",
                            R"("loftq_config": {"a": 4})",
                            R"("megatron_config": {"a": 4})",
                            R"("target_parameters": ["x"])",
                            R"("lora_bias": true)",
                            R"("trainable_token_indices": [1])",
                            R"("init_lora_weights": "pissa")",
                            R"("bias": "some")",
                            R"("a_later_method": 1)",
                            R"("rank_pattern": {"(": 1})",
                            R"("rank_pattern": {"q": 0})",
                            R"("alpha_pattern": [])",
                            R"("r": 2.5)",
                            R"("r": 0)",
                            R"("r": 10000000)",
                            R"("lora_alpha": "a")",
                            R"("lora_dropout": 1)",
                            R"("target_modules": [1])",
                            R"("modules_to_save": {"a": 1})",
                            R"("use_rslora": 1)",
                            R"("peft_type": 1)"}) {
    INFO(field);
    const std::string text = std::string(R"({"peft_type": "LORA", )") + field + "}";
    CHECK(throws([&] { nn::parse_adapter_config(text, "config"); }, ""));
  }
  CHECK(throws(
      [] { nn::parse_adapter_config(R"({"peft_type": "LORA", "use_dora": true})", "config"); },
      "config: \"use_dora\" is true, which is not supported"));
  CHECK(throws([] { nn::parse_adapter_config("{}", "config"); }, "\"peft_type\" is null"));
  CHECK(throws([] { nn::parse_adapter_config(R"({"peft_type": "IA3"})", "config"); }, "IA3"));
  CHECK(throws([] { nn::parse_adapter_config("{\"r\": 1, \"r\": 2}", "config"); }, "config"));
  CHECK(throws([] { nn::parse_adapter_config("[", "config"); }, "config"));
}

TEST_CASE("a malformed adapter is refused before the model changes") {
  const auto refused = [](Shapes shapes, const std::string& part) {
    Encoder model;
    const TemporaryFolder folder;
    write_adapter(folder.path(), plain, shapes);
    const bool refused = throws([&] { load_adapter({model, tables}, folder.path()); }, part);
    return refused && lora_layers(model).empty() && summary_of_tuning(model).frozen == 0;
  };
  const auto with = [](const std::string& name, const Shape& shape) {
    Shapes shapes = one_layer;
    shapes[name] = shape;
    return shapes;
  };
  const std::string a = query + ".lora_A.weight", b = query + ".lora_B.weight";
  CHECK(refused({{a, {2, 8}}}, "only one factor of bert.encoder"));
  CHECK(refused({}, "no factors of LoRA"));
  CHECK(refused(with(a, {3, 8}), "is (3, 8), not of rank 2 and 8 inputs"));
  CHECK(refused(with(a, {2, 9}), "is (2, 9)"));
  CHECK(refused(with(a, {16}), "is (16)"));
  CHECK(refused(with(b, {9, 2}), "is (9, 2), not of 8 outputs and rank 2"));
  CHECK(refused(with("bert.x", {2}), "bert.x does not begin with base_model.model."));
  CHECK(refused(with(query + ".lora_magnitude_vector", {8}), "no factor of a supported kind"));
  CHECK(refused(with(query + ".lora_B.bias", {8}), "no factor of a supported kind"));
  CHECK(refused(with(key_start + "classifier.weight", {4, 8}), "is (4, 8) where the model has"));
  CHECK(refused(with(key_start + "score.weight", {4, 8}), "belongs to nothing in the model"));
  CHECK(refused({{key_start + "bert.encoder.layer.7.attention.self.query.lora_A.weight", {2, 8}},
                 {key_start + "bert.encoder.layer.7.attention.self.query.lora_B.weight", {8, 2}}},
                "no layer encoder.layer.7.attention.self.query that takes LoRA"));
  CHECK(refused({{key_start + "bert.embeddings.LayerNorm.lora_A.weight", {2, 8}},
                 {key_start + "bert.embeddings.LayerNorm.lora_B.weight", {8, 2}}},
                "no layer embeddings.LayerNorm that takes LoRA"));
  Encoder model;
  const TemporaryFolder folder;
  CHECK(throws<SystemFailure>(
      [&] {
        load_adapter({model, tables}, folder.path());
      },
      "adapter_config"));
  write_adapter(folder.path(), plain, one_layer);
  load_adapter({model, tables}, folder.path());
  CHECK(throws([&] { load_adapter({model, tables}, folder.path()); }, "has LoRA already"));
}

TEST_CASE("a model without LoRA, or with other trained parts, has no adapter") {
  Encoder model;
  const TemporaryFolder folder;
  CHECK(throws([&] { save_adapter({model, tables, head}, folder.path()); }, "has no LoRA"));
  apply_tuning(model, parse_tuning("lora:2"));
  lora_layers(model)[0].second->merge();
  CHECK(throws([&] { save_adapter({model, tables, head}, folder.path()); }, "is merged"));
}
