#include "nn/data/tokenizer/tokenizer_files.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/io/atomic_file.h"
#include "core/io/strict_json.h"
#include "core/io/utf8.h"
#include "nn/data/tokenizer/document.h"

namespace sotto {

namespace {

using nlohmann::json;

constexpr std::size_t max_bytes = std::size_t{1} << 28;

// tokenizer_config.json as the caller read it.
Field config_field(const json& config) { return {config, "tokenizer: tokenizer_config.json: "}; }

std::vector<std::string> lines_of(const std::string& path) {
  const std::string text = read_file(path, max_bytes);
  std::vector<std::string> y;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const bool carriage_return = end > at && text[end - 1] == '\r';
    y.push_back(text.substr(at, end - at - (carriage_return ? 1 : 0)));
    check(valid_utf8(y.back()), "tokenizer: {}: line {} is not UTF-8", path, y.size());
    at = end + 1;
  }
  return y;
}

// The class without "Fast", or "".
std::string class_of(const json& config, const std::set<std::string>& supported,
                     const std::string& path) {
  std::string name = config_field(config).text_or("tokenizer_class", "");
  constexpr std::string_view fast = "Fast";
  if (name.ends_with(fast)) name.resize(name.size() - fast.size());
  check(name.empty() || supported.contains(name),
        "tokenizer: {}: the tokenizer class {} is not supported without a tokenizer.json", path,
        excerpt(name));
  return name;
}

// The config's added_tokens_decoder, {id: token}, by id.
std::map<std::int64_t, json> tokens_by_id(const json& config) {
  std::map<std::int64_t, json> y;
  const auto tokens = config_field(config).find("added_tokens_decoder");
  if (!tokens) return y;
  tokens->expect(tokens->value().is_object(), "not an object");
  for (const auto& [key, value] : tokens->value().items()) {
    constexpr std::size_t max_digits = 9;
    const bool number =
        !key.empty() && key.size() <= max_digits && key.find_first_not_of("0123456789") == key.npos;
    tokens->expect(number, "{} is not an id", excerpt(key));
    tokens->expect(value.is_object(), "{} is no object", key);
    json token = value;
    token["id"] = std::stoll(key);
    y[std::stoll(key)] = std::move(token);
  }
  return y;
}

// The config's added tokens, and the vocabulary's tokens that have a role.
json added_tokens(const json& vocabulary, const json& config, const json& roles) {
  std::map<std::int64_t, json> by_id = tokens_by_id(config);
  for (const auto& [role, token] : roles.items()) {
    const auto& content = token.get_ref<const std::string&>();
    const auto place = vocabulary.find(content);
    if (place == vocabulary.end()) continue;
    const bool lstrip = config.contains(role) && config.at(role).is_object() &&
                        Field(config.at(role), role).flag("lstrip", false);
    const std::int64_t id = Field(*place, "tokenizer: the id of " + excerpt(content)).number();
    by_id.try_emplace(id, json{{"id", id},
                               {"content", content},
                               {"special", true},
                               {"normalized", false},
                               {"lstrip", lstrip}});
  }
  json y = json::array();
  for (auto& [id, token] : by_id) y.push_back(std::move(token));
  return y;
}

// Gives roles that the config leaves open to tokens that the vocabulary has.
json with_defaults(json roles, const json& vocabulary,
                   const std::map<std::string, std::string>& defaults) {
  for (const auto& [role, token] : defaults) {
    if (!roles.contains(role) && vocabulary.contains(token)) roles[role] = token;
  }
  return roles;
}

// "cls" and "sep" of a post-processor; null if one has no token.
json around(const char* type, const json& roles, const json& vocabulary) {
  json y{{"type", type}};
  for (const char* name : {"cls", "sep"}) {
    const auto role = roles.find(std::string(name) + "_token");
    if (role == roles.end() || !vocabulary.contains(role->get<std::string>())) return nullptr;
    y[name] = {*role, vocabulary.at(role->get<std::string>())};
  }
  return y;
}

}  // namespace

json read_tokenizer_json(const std::string& path) {
  constexpr JsonLimits limits{.depth = 32, .max_entries = std::size_t{1} << 24};
  return parse_json_object(read_file(path, max_bytes), "tokenizer: " + path, limits);
}

json roles_in(const json& config) {
  json y = json::object();
  const Field fields = config_field(config);
  for (const char* role : {"bos_token", "eos_token", "unk_token", "pad_token", "cls_token",
                           "sep_token", "mask_token"}) {
    const auto token = fields.find(role);
    if (token) y[role] = (token->value().is_object() ? (*token)["content"] : *token).text();
  }
  return y;
}

TokenizerDocument bpe_files(const std::string& vocabulary, const std::string& merges,
                            const json& config) {
  const std::string kind =
      class_of(config, {"GPT2Tokenizer", "RobertaTokenizer", "BartTokenizer"}, vocabulary);
  const bool roberta = !kind.empty() && kind != "GPT2Tokenizer";
  json tokens = read_tokenizer_json(vocabulary);
  std::map<std::string, std::string> defaults{
      {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"},  {"pad_token", "<pad>"},
      {"cls_token", "<s>"}, {"sep_token", "</s>"}, {"mask_token", "<mask>"}};
  if (!roberta) {
    const char* end = "<|endoftext|>";
    defaults = {{"bos_token", end}, {"eos_token", end}, {"unk_token", end}};
  }
  const json roles = with_defaults(roles_in(config), tokens, defaults);
  json lines = json::array();
  for (std::string& line : lines_of(merges)) {
    if (!line.empty()) lines.push_back(std::move(line));
  }
  const bool prefix = config_field(config).flag("add_prefix_space", false);
  json document{
      {"added_tokens", added_tokens(tokens, config, roles)},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", prefix}}},
      {"post_processor", roberta ? around("RobertaProcessing", roles, tokens) : json(nullptr)},
      {"decoder", {{"type", "ByteLevel"}}}};
  document["model"] = {{"type", "BPE"}, {"vocab", std::move(tokens)}, {"merges", std::move(lines)}};
  return {std::move(document), roles};
}

TokenizerDocument word_piece_file(const std::string& vocabulary, const json& config) {
  class_of(config, {"BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"}, vocabulary);
  json tokens = json::object();
  const std::vector<std::string> lines = lines_of(vocabulary);
  for (std::size_t k = 0; k < lines.size(); ++k) {
    const auto [place, added] = tokens.emplace(lines[k], k);
    check(added, "tokenizer: {}: lines {} and {} are both {}", vocabulary,
          place->get<std::size_t>() + 1, k + 1, excerpt(lines[k]));
  }
  const json roles = with_defaults(roles_in(config), tokens,
                                   {{"unk_token", "[UNK]"},
                                    {"pad_token", "[PAD]"},
                                    {"cls_token", "[CLS]"},
                                    {"sep_token", "[SEP]"},
                                    {"mask_token", "[MASK]"}});
  const Field fields = config_field(config);
  const bool lower = fields.flag("do_lower_case", true);
  json document{{"added_tokens", added_tokens(tokens, config, roles)},
                {"normalizer",
                 {{"type", "BertNormalizer"},
                  {"clean_text", fields.flag("clean_text", true)},
                  {"handle_chinese_chars", fields.flag("tokenize_chinese_chars", true)},
                  {"strip_accents", fields.flag("strip_accents", lower)},
                  {"lowercase", lower}}},
                {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                {"post_processor", around("BertProcessing", roles, tokens)},
                {"decoder", {{"type", "WordPiece"}}}};
  document["model"] = {{"type", "WordPiece"},
                       {"unk_token", roles.value("unk_token", "[UNK]")},
                       {"vocab", std::move(tokens)}};
  return {std::move(document), roles};
}

}  // namespace sotto
