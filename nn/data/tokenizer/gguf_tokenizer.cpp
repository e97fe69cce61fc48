#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "core/io/utf8.h"
#include "nn/data/tokenizer/document.h"
#include "nn/data/tokenizer/tokenizer_files.h"

namespace sotto {

namespace {

using nlohmann::json;

// Types of tokens, as the format of GGUF numbers them.
enum TokenType : std::int64_t { normal = 1, unknown = 2, control = 3, user_defined = 4 };

json split_by(const std::string& pattern) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

json byte_level(bool words) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", false},
          {"use_regex", words}};
}

// Llama 3's words, with at most so many digits together.
std::string llama3_words(const char* digits) {
  return fmt::format(
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{{L}}\\p{{N}}]?\\p{{L}}+|{}|"
      " ?[^\\s\\p{{L}}\\p{{N}}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
      digits);
}

// The pre-tokenizers of a byte-level model, by tokenizer.ggml.pre.
json pre_tokenizers(const Field& pre) {
  const json digits{{"type", "Digits"}, {"individual_digits", true}};
  static const std::map<std::string, const char*> kinds{{"gpt-2", "gpt2"},
                                                        {"gpt2", "gpt2"},
                                                        {"smollm", "digits"},
                                                        {"starcoder", "digits"},
                                                        {"refact", "digits"},
                                                        {"command-r", "digits"},
                                                        {"llama-bpe", "llama3"},
                                                        {"llama3", "llama3"},
                                                        {"llama-v3", "llama3"},
                                                        {"qwen2", "qwen2"},
                                                        {"deepseek-r1-qwen", "qwen2"}};
  const std::string name = pre.text();
  const auto found = kinds.find(name);
  pre.expect(found != kinds.end(), "the pattern {} is not supported", excerpt(name));
  const std::string kind = found->second;
  if (kind == "gpt2") return {byte_level(true)};
  if (kind == "digits") return {digits, byte_level(true)};
  return {split_by(llama3_words(kind == "qwen2" ? "\\p{N}" : "\\p{N}{1,3}")), byte_level(false)};
}

// Merges that join two tokens to one, those of the largest score first, as llama's own tokenizer
// does without merges.
json merges_by_score(const json& vocabulary, const std::vector<double>& scores) {
  using Merge =
      std::tuple<double, std::int64_t, std::int64_t, std::int64_t, std::string, std::string>;
  std::vector<Merge> merges;
  for (const auto& [token, id] : vocabulary.items()) {
    for (std::size_t at = 1; at < token.size(); ++at) {
      const auto left = vocabulary.find(token.substr(0, at));
      const auto right = vocabulary.find(token.substr(at));
      if (left == vocabulary.end() || right == vocabulary.end()) continue;
      const auto number = id.get<std::int64_t>();
      merges.emplace_back(-scores[static_cast<std::size_t>(number)], number,
                          left->get<std::int64_t>(), right->get<std::int64_t>(), left.key(),
                          right.key());
    }
  }
  std::sort(merges.begin(), merges.end());
  json y = json::array();
  for (auto& merge : merges) y.push_back({std::get<4>(merge), std::get<5>(merge)});
  return y;
}

class Reader {
 public:
  Reader(const json& metadata, const std::string& path)
      : metadata_(metadata, "tokenizer: " + path + ": ") {}

  TokenizerDocument read() {
    const std::string model = key("model").text();
    key("model").expect(model == "gpt2" || model == "llama", "the model {} is not supported",
                        excerpt(model));
    read_tokens();
    json document = model == "gpt2" ? byte_level_document() : fallback_document();
    document["added_tokens"] = added_;
    document["post_processor"] = ends(model == "llama");
    return {std::move(document), roles()};
  }

 private:
  std::optional<Field> find(const std::string& name) const {
    return metadata_.find("tokenizer.ggml." + name);
  }
  Field key(const std::string& name) const { return metadata_["tokenizer.ggml." + name]; }
  bool flag(const std::string& name, bool otherwise) const {
    return metadata_.flag("tokenizer.ggml." + name, otherwise);
  }

  void read_tokens() {
    for (const Field& token : key("tokens").list()) {
      const auto [place, added] = vocabulary_.emplace(token.text(), tokens_.size());
      token.expect(added, "the token {} occurs twice", excerpt(place.key()));
      tokens_.push_back(place.key());
    }
    const auto types = find("token_type");
    if (!types) return;
    const std::vector<Field> list = types->list();
    types->expect(list.size() == tokens_.size(), "{} types of {} tokens", list.size(),
                  tokens_.size());
    for (std::size_t id = 0; id < list.size(); ++id) {
      const std::int64_t type = list[id].number();
      if (type == unknown) unknown_ = tokens_[id];
      if (type < unknown || type > user_defined) continue;
      added_.push_back({{"id", id},
                        {"content", tokens_[id]},
                        {"special", type != user_defined},
                        {"normalized", false},
                        {"single_word", false},
                        {"lstrip", false},
                        {"rstrip", false}});
    }
  }

  json byte_level_document() {
    json steps = pre_tokenizers(key("pre"));
    const bool whole_words = steps[0]["type"] == "Split";  // llama 3 and its likes
    json y{{"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}}},
           {"decoder", byte_level(true)}};
    y["model"] = {{"type", "BPE"},
                  {"vocab", std::move(vocabulary_)},
                  {"merges", key("merges").value()},
                  {"ignore_merges", whole_words && key("pre").text().starts_with("llama")}};
    return y;
  }

  json fallback_document() {
    const Field field = key("scores");
    std::vector<double> scores;
    for (const Field& score : field.list()) {
      score.expect(score.value().is_number(), "not a number");
      scores.push_back(score.value().get<double>());
    }
    field.expect(scores.size() == tokens_.size(), "{} scores of {} tokens", scores.size(),
                 tokens_.size());
    const bool prefix = flag("add_space_prefix", true);
    json steps = json::array();
    if (prefix) steps.push_back({{"type", "Prepend"}, {"prepend", "\u2581"}});
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}});
    json y{{"normalizer", {{"type", "Sequence"}, {"normalizers", std::move(steps)}}},
           {"decoder",
            {{"type", "Sequence"},
             {"decoders",
              {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
               {{"type", "ByteFallback"}},
               {{"type", "Fuse"}},
               {{"type", "Strip"}, {"content", " "}, {"start", prefix ? 1 : 0}, {"stop", 0}}}}}}};
    json merges = merges_by_score(vocabulary_, scores);
    y["model"] = {{"type", "BPE"},
                  {"vocab", std::move(vocabulary_)},
                  {"merges", std::move(merges)},
                  {"unk_token", unknown_.empty() ? json(nullptr) : json(unknown_)},
                  {"fuse_unk", true},
                  {"byte_fallback", true}};
    return y;
  }

  std::optional<std::string> named(const std::string& name) const {
    const auto id = find(name);
    if (!id) return std::nullopt;
    const auto number = static_cast<std::size_t>(id->number());
    id->expect(number < tokens_.size(), "id {} of {} tokens", number, tokens_.size());
    return tokens_[number];
  }

  json roles() const {
    json y = json::object();
    for (const auto& [role, name] :
         std::map<std::string, std::string>{{"bos_token", "bos_token_id"},
                                            {"eos_token", "eos_token_id"},
                                            {"unk_token", "unknown_token_id"},
                                            {"pad_token", "padding_token_id"},
                                            {"cls_token", "cls_token_id"},
                                            {"sep_token", "seperator_token_id"},
                                            {"mask_token", "mask_token_id"}}) {
      if (const auto token = named(name)) y[role] = *token;
    }
    return y;
  }

  // The tokens at the beginning and at the end of a text.
  json ends(bool llama) const {
    json single = json::array(), pair = json::array(), special = json::object();
    const auto add = [&](const std::string& flag_name, const std::string& id_name, bool otherwise,
                         std::int64_t type) {
      if (!flag(flag_name, otherwise)) return;
      const auto token = named(id_name);
      metadata_.expect(token.has_value(), "no tokenizer.ggml.{}", id_name);
      special[*token] = {{"id", *token}, {"ids", {key(id_name).value()}}, {"tokens", {*token}}};
      const json part{{"SpecialToken", {{"id", *token}, {"type_id", type}}}};
      if (type == 0) single.push_back(part);
      pair.push_back(part);
    };
    const bool begins = llama || key("pre").text().starts_with("llama");
    for (const std::int64_t type : {0, 1}) {
      const json text{{"Sequence", {{"id", type == 0 ? "A" : "B"}, {"type_id", type}}}};
      add("add_bos_token", "bos_token_id", begins, type);
      if (type == 0) single.push_back(text);
      pair.push_back(text);
      add("add_eos_token", "eos_token_id", false, type);
    }
    return {{"type", "TemplateProcessing"},
            {"single", single},
            {"pair", pair},
            {"special_tokens", special}};
  }

  Field metadata_;
  std::vector<std::string> tokens_;  // by id
  json vocabulary_ = json::object();
  json added_ = json::array();
  std::string unknown_;
};

}  // namespace

TokenizerDocument gguf_tokenizer(const json& metadata, const std::string& path) {
  return Reader(metadata, path).read();
}

}  // namespace sotto
