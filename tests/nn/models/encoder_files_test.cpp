// Files of BERT and ViT as packages of several years wrote them: names, bare bodies, heads.
#include <functional>

#include "core/io/safetensors.h"
#include "nn/init.h"
#include "nn/models/pretrained.h"
#include "nn/state.h"
#include "tests/nn/models/encoder_cases.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/throws.h"

using namespace sotto;
using nlohmann::json;

namespace {

json bert_config() {
  return {{"architectures", {"BertForSequenceClassification"}},
          {"model_type", "bert"},
          {"vocab_size", 20},
          {"hidden_size", 8},
          {"num_hidden_layers", 1},
          {"num_attention_heads", 2},
          {"intermediate_size", 12},
          {"max_position_embeddings", 8},
          {"num_labels", 3}};
}

json vit_config() {
  return {{"architectures", {"ViTForImageClassification"}},
          {"model_type", "vit"},
          {"image_size", 8},
          {"patch_size", 4},
          {"hidden_size", 8},
          {"num_hidden_layers", 1},
          {"num_attention_heads", 2},
          {"intermediate_size", 12},
          {"num_labels", 3}};
}

json timm_config() {
  return {{"architecture", "vit_tiny_patch16_224"},
          {"num_classes", 3},
          {"label_names", {"a", "b", "c"}},
          {"model_args",
           {{"img_size", 8},
            {"patch_size", 4},
            {"embed_dim", 8},
            {"depth", 1},
            {"num_heads", 2},
            {"num_classes", 3}}},
          {"pretrained_cfg", {{"num_classes", 3}, {"input_size", {3, 8, 8}}}}};
}

using Tensors = std::map<std::string, Tensor>;
using Rename = std::function<std::string(const std::string&)>;

// Writes the tensors of a fresh model under other names, and changes them.
void write(const TemporaryFolder& folder, const json& config, const nn::Architecture& architecture,
           const Rename& rename, const std::function<void(Tensors&)>& change = {}) {
  nn::manual_seed(11);
  const auto model = architecture.make(config, {});
  Tensors tensors;
  for (const auto& [name, value] : nn::parameter_tensors(*model)) tensors[rename(name)] = value;
  if (change) change(tensors);
  save_safetensors(folder.path("model.safetensors"), {.tensors = tensors});
  folder.write("config.json", config.dump());
}

std::string in_bert(const std::string& name) {
  return name.starts_with("classifier") ? name : "bert." + name;
}

std::string replaced(std::string text, const std::string& part, const std::string& other) {
  const std::size_t at = text.find(part);
  return at == std::string::npos ? text : text.replace(at, part.size(), other);
}

std::vector<double> outputs(const nn::Pretrained& loaded, std::int64_t side = 8) {
  Tape tape({.training = false});
  const Tensor ids = Tensor::from(std::vector<std::int64_t>{3, 7, 4, 9}, {1, 4});
  if (loaded.report.architecture == "bert") return values_of((*loaded.model)(tape.input(ids)));
  return values_of((*loaded.model)(tape.input(full({1, 3, side, side}, 0.5))));
}

bool contains(const std::vector<std::string>& names, const std::string& beginning) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return name.starts_with(beginning); });
}

}  // namespace

TEST_CASE("BERT's files of older versions hold the same model") {
  const TemporaryFolder now, before;
  write(now, bert_config(), nn::bert_architecture(), in_bert);
  write(
      before, bert_config(), nn::bert_architecture(),
      [](const std::string& name) {
        return replaced(replaced(in_bert(name), "LayerNorm.weight", "LayerNorm.gamma"),
                        "LayerNorm.bias", "LayerNorm.beta");
      },
      [](Tensors& tensors) {
        tensors["bert.embeddings.position_ids"] = zeros({1, 8}, Dtype::i64);
        tensors["cls.predictions.bias"] = zeros({20});
      });
  const nn::Pretrained old = nn::load_pretrained(before.path());
  CHECK(outputs(old) == outputs(nn::load_pretrained(now.path())));
  CHECK(contains(old.report.skipped, "bert.embeddings.position_ids"));
  CHECK(contains(old.report.skipped, "cls.predictions.bias"));
}

TEST_CASE("a bare body gets a head of the classes that are asked for") {
  const TemporaryFolder folder;
  json config = bert_config();
  config["architectures"] = {"BertModel"};
  config.erase("num_labels");
  write(folder, config, nn::bert_architecture(), [](const std::string& name) { return name; });
  CHECK(outputs(nn::load_pretrained(folder.path())).size() == 4 * 8);
  const nn::Pretrained loaded = nn::load_pretrained(folder.path(), {.classes = 5});
  CHECK(outputs(loaded).size() == 5);
  CHECK(contains(loaded.report.drawn_anew, "classifier.weight"));
}

TEST_CASE("what is left over, missing or of another size in BERT's files is named") {
  const auto refused = [](const std::function<void(Tensors&)>& change, const std::string& text) {
    const TemporaryFolder folder;
    write(folder, bert_config(), nn::bert_architecture(), in_bert, change);
    return throws([&] { nn::load_pretrained(folder.path()); }, text);
  };
  CHECK(refused([](Tensors& t) { t["bert.more"] = zeros({2}); }, "bert.more"));
  CHECK(refused([](Tensors& t) { t.erase("bert.embeddings.LayerNorm.bias"); },
                "embeddings.LayerNorm.bias"));
  CHECK(refused([](Tensors& t) { t["classifier.weight"] = zeros({4, 8}); }, "classifier.weight"));
}

TEST_CASE("ViT's files with the names of version 5 hold the same model, and are saved so") {
  const TemporaryFolder old, now, saved;
  const auto in_vit = [](const std::string& name) {
    return name.starts_with("classifier") ? name : "vit." + name;
  };
  write(old, vit_config(), nn::vit_architecture(), in_vit);
  write(now, vit_config(), nn::vit_architecture(), [&](const std::string& name) {
    std::string own = replaced(in_vit(name), "encoder.layer", "layers");
    for (const auto& [part, other] :
         {std::pair("attention.attention.query", "attention.q_proj"),
          std::pair("attention.attention.key", "attention.k_proj"),
          std::pair("attention.attention.value", "attention.v_proj"),
          std::pair("attention.output.dense", "attention.o_proj"),
          std::pair("intermediate.dense", "mlp.fc1"), std::pair("output.dense", "mlp.fc2")})
      own = replaced(own, part, other);
    return own;
  });
  const nn::Pretrained loaded = nn::load_pretrained(now.path());
  CHECK(outputs(loaded) == outputs(nn::load_pretrained(old.path())));
  nn::save_pretrained(loaded, saved.path());
  CHECK(load_safetensors(saved.path("model.safetensors"))
            .tensors.contains("vit.layers.0.attention.q_proj.weight"));
}

TEST_CASE("a vision transformer for images of another size is saved as one") {
  const auto own = [](const std::string& name) { return name; };
  const TemporaryFolder vit, timm, saved;
  write(vit, vit_config(), nn::vit_architecture(), own);
  write(timm, timm_config(), nn::timm_vit_architecture(), own);
  for (const TemporaryFolder* const folder : {&vit, &timm}) {
    const nn::Pretrained loaded = nn::load_pretrained(folder->path(), {.image_size = 16});
    nn::save_pretrained(loaded, saved.path());
    CHECK(outputs(loaded, 16) == outputs(nn::load_pretrained(saved.path()), 16));
    const nn::Pretrained same = nn::load_pretrained(folder->path(), {.image_size = 8});
    CHECK(outputs(same) == outputs(nn::load_pretrained(folder->path())));
  }
  const json config = json::parse(nn::load_pretrained(saved.path()).config);
  CHECK(config["model_args"]["img_size"] == 16);
  CHECK(config["pretrained_cfg"]["input_size"] == json{3, 16, 16});
  CHECK(throws([&] { nn::load_pretrained(vit.path(), {.image_size = -1}); }, "image_size -1"));
  write(saved, bert_config(), nn::bert_architecture(), in_bert);
  CHECK(throws([&] { nn::load_pretrained(saved.path(), {.image_size = 16}); },
               "image_size 16: bert is no model of images"));
}

TEST_CASE("rates of dropout that are asked for reach timm's models, and no saved config") {
  const TemporaryFolder folder;
  write(folder, timm_config(), nn::timm_vit_architecture(),
        [](const std::string& name) { return name; });
  const nn::Pretrained plain = nn::load_pretrained(folder.path());
  const auto trained = [](const nn::Pretrained& loaded) {
    Tape tape({.seed = 3});
    return values_of((*loaded.model)(tape.input(full({1, 3, 8, 8}, 0.5))));
  };
  for (const auto& options : {nn::PretrainedOptions{.dropout = 0.5}, {.drop_path = 0.9}}) {
    const nn::Pretrained loaded = nn::load_pretrained(folder.path(), options);
    CHECK(loaded.config == plain.config);
    CHECK(outputs(loaded) == outputs(plain));
    CHECK((trained(loaded) == trained(plain)) == options.drop_path.has_value());
  }
  CHECK(throws([&] { nn::load_pretrained(folder.path(), {.drop_path = 1}); }, "drop_path_rate"));
}

TEST_CASE("timm's config tells the classes of a new head everywhere, and no names of others") {
  const TemporaryFolder folder, saved;
  write(folder, timm_config(), nn::timm_vit_architecture(),
        [](const std::string& name) { return name; });
  const auto config_of = [&](std::int64_t classes) {
    return json::parse(nn::load_pretrained(folder.path(), {.classes = classes}).config);
  };
  const json five = config_of(5);
  CHECK(five["num_classes"] == 5);
  CHECK(five["model_args"]["num_classes"] == 5);
  CHECK(five["pretrained_cfg"]["num_classes"] == 5);
  CHECK_FALSE(five.contains("label_names"));
  CHECK(config_of(3).contains("label_names"));
}
