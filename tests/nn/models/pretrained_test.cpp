// Weights of files in models, and back: names, orientation, tying, reports, faults.
#include "nn/models/pretrained.h"

#include <fstream>
#include <sstream>

#include "core/io/safetensors.h"
#include "nn/models/load_weights.h"
#include "nn/models/lora_targets.h"
#include "tests/nn/models/small_models.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

const char* const gpt2_json = R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
  "vocab_size": 13, "n_positions": 12, "n_embd": 8, "n_layer": 2, "n_head": 2, "dtype": "bfloat16"})";
const char* const llama_json = R"({"model_type": "llama", "vocab_size": 13, "hidden_size": 12,
  "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 4, "tie_word_embeddings": false})";

// The tensors of a small GPT-2 as transformers writes them, the matrices of blocks [in, out].
std::map<std::string, Tensor> gpt2_tensors(const std::string& prefix) {
  nn::manual_seed(9);
  nn::Gpt2 model(small_gpt2());
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, parameter] : model.named_parameters()) {
    const Tensor& value = parameter->value;
    const bool turned = name.starts_with("h.") && value.rank() == 2;
    tensors[prefix + name] = turned ? contiguous(value.transpose(0, 1)) : value;
  }
  return tensors;
}

struct Files {
  TemporaryFolder folder;
  std::map<std::string, Tensor> tensors;

  explicit Files(const std::string& prefix = "transformer.") : tensors(gpt2_tensors(prefix)) {}
  nn::Pretrained load(const nn::PretrainedOptions& options = {},
                      const std::string& config = gpt2_json) const {
    save_safetensors(folder.path("model.safetensors"), {.tensors = tensors});
    folder.write("config.json", config);
    return nn::load_pretrained(folder.path(), options);
  }
};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

Tensor logits(const nn::Pretrained& pretrained) {
  return logits_of(pretrained.tokens(), Tensor::from(some_ids(10), {2, 5}));
}

}  // namespace

TEST_CASE("a GPT-2 of a file computes what the model computed that it came from") {
  nn::manual_seed(9);
  nn::Gpt2 model(small_gpt2());
  const Tensor expected = logits_of(model, Tensor::from(some_ids(10), {2, 5}));
  for (const std::string prefix : {"transformer.", ""}) {
    const Files files(prefix);
    const nn::Pretrained loaded = files.load();
    CHECK(difference(logits(loaded), expected) == 0);
    CHECK(loaded.report.loaded.size() == files.tensors.size());
    CHECK(loaded.names[2].file == prefix + "h.0.ln_1.weight");
    CHECK(loaded.names[4].transposed);
  }
}

TEST_CASE("a saved model has the bits and names of the file it was loaded from") {
  for (const std::string prefix : {"transformer.", ""}) {
    const Files files(prefix);
    const TemporaryFolder saved;
    nn::save_pretrained(files.load(), saved.path("new"));
    const TensorFile again = load_safetensors(saved.path("new/model.safetensors"));
    REQUIRE(again.tensors.size() == files.tensors.size());
    for (const auto& [name, tensor] : again.tensors)
      CHECK(difference(tensor, files.tensors.at(name)) == 0);
    CHECK(again.metadata.at("format") == "pt");
    std::stringstream config;
    config << std::ifstream(saved.path("new/config.json")).rdbuf();
    CHECK(config.str().find("\"dtype\": \"float32\"") != std::string::npos);
    CHECK(difference(logits(nn::load_pretrained(saved.path("new"))), logits(files.load())) == 0);
  }
}

TEST_CASE("adapters are merged into a saved model, and a table without an output layer is tied") {
  const Files files;
  const nn::Pretrained adapted = files.load();
  CHECK(adapted.report.tied == std::vector<std::string>{"lm_head.weight (is wte.weight)"});
  nn::add_lora(*adapted.model, [](const std::string& path, const nn::Module&) {
    return path.ends_with("c_attn") ? std::optional(nn::LoraOptions{.rank = 2}) : std::nullopt;
  });
  for (const auto& [name, parameter] : adapted.model->named_parameters()) {
    if (name.ends_with("lora_b")) parameter->value = full(parameter->value.shape(), 0.25);
  }
  const TemporaryFolder saved;
  nn::save_pretrained(adapted, saved.path());
  CHECK(difference(logits(nn::load_pretrained(saved.path())), logits(adapted)) < 1e-4);
  CHECK(difference(logits(adapted), logits(files.load())) > 1e-2);
}

TEST_CASE("a parameter that is written to leaves the file as it is") {
  const Files files;
  const nn::Pretrained loaded = files.load();
  copy_into(full({}, 7), loaded.model->named_parameters()[0].second->value);
  CHECK(difference(load_safetensors(files.folder.path("model.safetensors"))
                       .tensors.at("transformer.wte.weight"),
                   files.tensors.at("transformer.wte.weight")) == 0);
}

TEST_CASE("buffers of older versions are passed over by name, and told") {
  Files files;
  files.tensors["transformer.h.1.attn.bias"] = zeros({1, 1, 12, 12}, Dtype::u8);
  files.tensors["transformer.h.1.attn.masked_bias"] = zeros({});
  const nn::LoadReport report = files.load().report;
  REQUIRE(report.skipped.size() == 2);
  CHECK(report.skipped[0] ==
        "transformer.h.1.attn.bias (the causal mask, in files before mid-2023)");
  CHECK(report.to_text().find("passed over: transformer.h.1.attn.bias (") != std::string::npos);
}

TEST_CASE("tensors that are missing, left over or of another shape are named") {
  Files files;
  files.tensors["transformer.h.0.attn.rotary"] = zeros({2});
  CHECK(throws([&] { files.load(); }, "left over: transformer.h.0.attn.rotary"));
  CHECK(files.load({.ignore = {"**.rotary"}}).report.skipped.size() == 1);
  files.tensors.erase("transformer.h.0.attn.rotary");
  const Tensor kept = files.tensors.at("transformer.h.1.mlp.c_fc.weight");
  files.tensors["transformer.h.1.mlp.c_fc.weight"] = zeros({32, 8});
  CHECK(throws([&] { files.load(); },
               "transformer.h.1.mlp.c_fc.weight is (32, 8) where the model needs (8, 32)"));
  files.tensors["transformer.h.1.mlp.c_fc.weight"] = to_dtype(kept, Dtype::i64);
  CHECK(throws([&] { files.load(); }, "c_fc.weight is i64, not floating-point"));
  files.tensors.erase("transformer.h.1.mlp.c_fc.weight");
  CHECK(throws([&] { files.load(); }, "missing: h.1.mlp.c_fc.weight"));
  files.tensors.erase("transformer.h.0.ln_1.weight");
  CHECK(throws([&] { files.load(); }, "there is no tensor h.0.ln_1.weight"));
}

TEST_CASE("an output layer in the file is tied where it is equal, and else apart") {
  Files files;
  const Tensor table = files.tensors.at("transformer.wte.weight");
  files.tensors["lm_head.weight"] = table;
  const nn::Pretrained tied = files.load();
  CHECK(tied.report.tied == std::vector<std::string>{"lm_head.weight (is wte.weight)"});
  files.tensors["lm_head.weight"] = scale(table, 2);
  const nn::Pretrained apart = files.load();
  CHECK(difference(logits(apart), scale(logits(tied), 2)) < 1e-5);
  files.tensors["lm_head.weight"] = table;
  files.tensors.erase("transformer.wte.weight");
  CHECK(difference(logits(files.load()), logits(tied)) == 0);
}

TEST_CASE("absurd and unknown configs are refused in one line") {
  const Files files;
  const auto refused = [&](const std::string& from, const std::string& to, std::string_view part) {
    CAPTURE(to);
    CHECK(throws([&] { files.load({}, replaced(gpt2_json, from, to)); }, part));
  };
  refused("\"n_head\": 2", "\"n_head\": 0", "config: n_head is 0");
  refused("\"n_head\": 2", "\"n_head\": 3", "config: n_embd 8 is no multiple of n_head 3");
  refused("\"n_layer\": 2", "\"n_layer\": -1", "config: n_layer is -1");
  refused("\"vocab_size\": 13", "\"vocab_size\": 2e9", "parameters of more elements");
  refused("\"n_layer\": 2", "\"n_layer\": 2000000000", "parameters of more elements");
  refused("\"n_layer\": 2", "\"n_layer\": 3", "missing: h.2.");
  refused("\"n_layer\": 2", "\"n_layer\": 1", "left over: transformer.h.1.");
  refused("\"n_head\": 2", "\"n_head\": 2, \"activation_function\": \"glu\"",
          "config: activation_function = glu is not supported");
  refused("\"n_head\": 2", "\"n_head\": 2, \"add_cross_attention\": true",
          "config: add_cross_attention = true is not supported");
  refused("[\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\"", "[], \"model_type\": \"gpt9\"",
          "the architecture gpt9 is not known");
  refused("{\"arch", "[\"arch", "config.json");
}

TEST_CASE("a text of a config is not longer in a message than a line, and ends no process") {
  Files files;
  const std::string longest(1'000'000, 'a');
  const auto refused = [&](const std::string& config, const std::string& part) {
    try {
      files.load({}, config);
      FAIL("it is accepted");
    } catch (const std::invalid_argument& error) {
      const std::string text = error.what();
      CAPTURE(text.substr(0, 400));
      CHECK(text.size() < 400);
      CHECK(text.find(part) != std::string::npos);
    }
  };
  refused(replaced(gpt2_json, "\"n_head\": 2",
                   "\"n_head\": 2, \"activation_function\": \"" + longest + "\""),
          "config: activation_function = aaa");
  refused("{\"model_type\": \"" + longest + "\"}", "architecture aaa");
  files.tensors = {{"patch_embed.proj.weight", zeros({4, 3, 2, 2})}};
  refused("{\"architecture\": \"vit_" + longest + "_patch16_224\"}", "architecture vit_aaa");
}

TEST_CASE("the first blocks alone, and without dropout") {
  const Files files;
  const nn::Pretrained one = files.load({.dropout = 0.0, .blocks = 1});
  CHECK(one.model->parts().block_count == 1);
  CHECK(one.report.skipped.size() == 12);
  CHECK(one.report.skipped[0] == "transformer.h.1.attn.c_attn.bias (behind the first 1 blocks)");
  CHECK(one.config.find("\"n_layer\": 1") != std::string::npos);
  const Tensor ids = Tensor::from(some_ids(5), {1, 5});
  Tape tape({.training = true});
  CHECK(difference(one.tokens()({.ids = tape.input(ids)}).value(), logits_of(one.tokens(), ids)) ==
        0);
  CHECK(throws([&] { files.load({.blocks = 3}); }, "the first 3 blocks of 2"));
}

TEST_CASE("options of Llama's config are read or refused by name") {
  nn::manual_seed(2);
  nn::LlamaConfig config = small_llama();
  config.rotary = {};
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
  nn::Llama model(config);
  Files files;
  files.tensors.clear();
  for (const auto& [name, parameter] : model.named_parameters())
    files.tensors[(name == "lm_head.weight" ? "" : "model.") + name] = parameter->value;
  files.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = zeros({2});
  const auto with = [&](const std::string& more) {
    return replaced(llama_json, "{", "{\"attention_bias\": true, \"mlp_bias\": true, " + more);
  };
  const Tensor plain = logits(files.load({}, with("\"rms_norm_eps\": 1e-6, ")));
  CHECK(difference(plain, logits_of(model, Tensor::from(some_ids(10), {2, 5}))) == 0);
  const auto scaled = [&](const std::string& scaling) {
    return logits(files.load({}, with("\"rope_scaling\": {" + scaling + "}, ")));
  };
  CHECK(difference(scaled("\"type\": \"linear\", \"factor\": 1.0"), plain) == 0);
  CHECK(difference(scaled("\"type\": \"linear\", \"factor\": 4.0"), plain) > 1e-3);
  CHECK(throws([&] { scaled("\"rope_type\": \"yarn\", \"factor\": 4.0"); },
               "rope_type = yarn is not supported"));
  CHECK(throws([&] { scaled("\"rope_type\": \"linear\""); }, "factor is missing"));
  const std::string lists =
      "\"rope_type\": \"longrope\", \"short_factor\": [1, 2], \"long_factor\": ";
  CHECK(throws([&] { scaled(lists + "[1, 2]"); }, "attention_factor is missing beside longrope"));
  CHECK(throws([&] { scaled(lists + "[1, 3], \"attention_factor\": 1"); },
               "long_factor = [1,3] is not supported, only [1,2]"));
  CHECK(throws([&] { files.load({}, replaced(with(""), "\"llama\"", "\"mistral\"")); },
               "sliding_window is missing"));
  CHECK(throws([&] { files.load({}, with("\"pad_token_id\": 13, ")); }, "pad_token_id 13"));
  CHECK(throws([&] { files.load({}, replaced(with(""), "\"head_dim\": 4", "\"head_dim\": 5")); },
               "config: head_dim 5 is no multiple"));
  // Before as many frequencies are computed.
  CHECK(throws([&] { files.load({}, replaced(with(""), "\"head_dim\": 4", "\"head_dim\": 2e9")); },
               "config: heads of 2000000000 features, above 65536"));
}

TEST_CASE("rows whose pairs are neighbours become halves") {
  const Tensor rows = Tensor::from({0, 1, 2, 3, 4, 5, 6, 7}, {8, 1}, Dtype::f32);
  CHECK(nn::unpaired_rows(rows, 2).to_vector<float>() ==
        std::vector<float>{0, 2, 1, 3, 4, 6, 5, 7});
  CHECK(nn::unpaired_rows(rows, 1).to_vector<float>() ==
        std::vector<float>{0, 2, 4, 6, 1, 3, 5, 7});
  CHECK(throws([&] { nn::unpaired_rows(rows, 3); }, "8 rows are no pairs of 3 heads"));
}

TEST_CASE("a file without config.json needs the name of its architecture") {
  const Files files;
  save_safetensors(files.folder.path("only.safetensors"), {.tensors = files.tensors});
  const std::string path = files.folder.path("only.safetensors");
  CHECK(throws([&] { nn::load_pretrained(path); },
               "no architecture is named in the options: gpt2, llama"));
  CHECK(throws([&] { nn::load_pretrained(path, {.architecture = "gpt3"}); },
               "gpt3 is not known; known are gpt2, "));
  CHECK(throws<SystemFailure>([&] { nn::load_pretrained(files.folder.path("none")); }, "none"));
}
