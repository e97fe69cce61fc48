#include <algorithm>
#include <filesystem>

#include "core/io/utf8.h"
#include "nn/data/tokenizer/tokenizer.h"
#include "tests/conformance/kinds.h"
#include "tests/support/temporary_folder.h"

namespace sotto::conformance {

namespace {

using Ids = std::vector<std::int64_t>;

std::string file_of(const Case& c, const std::string& name) {
  return (c.folder / field<std::string>(field<Json>(c.body, "files"), name)).string();
}

Encoding encoded(const Tokenizer& tokenizer, const Json& row, bool special_tokens) {
  EncodeOptions options{.special_tokens = special_tokens};
  const auto pair = row.contains("pair") ? field<std::string>(row, "pair") : std::string();
  if (row.contains("pair")) options.pair = pair;
  return tokenizer.encode(field<std::string>(row, "text"), options);
}

void check_encode(const Tokenizer& tokenizer, const Json& row, const std::string& how,
                  Comparison& comparison) {
  const auto id = field<std::string>(row, "id");
  const Encoding got = encoded(tokenizer, row, field<bool>(row, "add_special_tokens"));
  if (const auto ids = field<Ids>(row, "ids"); got.ids != ids) {
    comparison.fail(fmt::format("encode {} ({}): [{}] where [{}] is expected", id, how,
                                fmt::join(got.ids, " "), fmt::join(ids, " ")));
  }
  if (!row.contains("type_ids")) return;
  if (const auto types = field<Ids>(row, "type_ids"); got.token_types != types) {
    comparison.fail(fmt::format("encode {} ({}): types [{}] where [{}] is expected", id, how,
                                fmt::join(got.token_types, " "), fmt::join(types, " ")));
  }
}

void check_decode(const Tokenizer& tokenizer, const Json& row, Comparison& comparison) {
  const auto ids = field<Ids>(row, "ids");
  const std::string got =
      tokenizer.decode(ids, {.skip_special_tokens = field<bool>(row, "skip_special_tokens")});
  if (const auto text = field<std::string>(row, "text"); got != text) {
    comparison.fail(fmt::format("decode {}: {} where {} is expected", field<std::string>(row, "id"),
                                excerpt(got), excerpt(text)));
  }
}

// Whether a row has a special token, in its text or around it; such rows are not for the second way
// in.
bool has_special(const Tokenizer& tokenizer, const Json& row, const Json& document) {
  if (field<bool>(row, "add_special_tokens") &&
      encoded(tokenizer, row, true).ids != encoded(tokenizer, row, false).ids)
    return true;
  const std::string texts = field<std::string>(row, "text") + "\n" + row.value("pair", "");
  const auto added = field<std::vector<Json>>(document, "added_tokens");
  return std::any_of(added.begin(), added.end(), [&](const Json& token) {
    return texts.find(field<std::string>(token, "content")) != texts.npos;
  });
}

void copy(const Case& c, const char* file, const std::string& path) {
  std::filesystem::copy_file(file_of(c, file), path);
}

std::string type_of(const Json& document, const char* part) {
  const Json value = document.value(part, Json());
  return value.is_null() ? std::string() : field<std::string>(value, "type");
}

// Whether vocab.json with merges.txt, or vocab.txt, say as much as tokenizer.json.
bool has_second_way(const Case& c, const Json& document) {
  const Json model = field<Json>(document, "model");
  if (c.type == "byte_level_bpe") {
    return type_of(document, "normalizer").empty() &&
           type_of(document, "pre_tokenizer") == "ByteLevel" &&
           document.at("pre_tokenizer").value("use_regex", true) &&
           !model.value("ignore_merges", false);
  }
  return c.type == "wordpiece" && type_of(document, "normalizer") == "BertNormalizer" &&
         type_of(document, "pre_tokenizer") == "BertPreTokenizer" &&
         model.value("continuing_subword_prefix", "##") == "##" &&
         model.value("max_input_chars_per_word", 100) == 100;
}

// The options of tokenizer.json that vocab.json or vocab.txt leave to tokenizer_config.json.
Json config_of(const Case& c, const Json& document) {
  if (c.type == "byte_level_bpe")
    return {{"add_prefix_space", document.at("pre_tokenizer").value("add_prefix_space", true)}};
  const Json normalizer = field<Json>(document, "normalizer");
  return {{"do_lower_case", normalizer.value("lowercase", true)},
          {"strip_accents", normalizer.value("strip_accents", Json())},
          {"tokenize_chinese_chars", normalizer.value("handle_chinese_chars", true)},
          {"clean_text", normalizer.value("clean_text", true)},
          {"unk_token", field<Json>(document, "model").value("unk_token", "[UNK]")}};
}

// The second way in: vocab.json with merges.txt, or vocab.txt, alone.
void check_vocabulary(const Case& c, const Tokenizer& whole, Comparison& comparison) {
  const Json document = read_json(file_of(c, "tokenizer"));
  if (!has_second_way(c, document)) return;
  const TemporaryFolder folder;
  if (c.type == "byte_level_bpe") {
    copy(c, "vocab", folder.path("vocab.json"));
    copy(c, "merges", folder.path("merges.txt"));
  } else {
    copy(c, "vocab", folder.path("vocab.txt"));
  }
  folder.write("tokenizer_config.json", config_of(c, document).dump());
  const Tokenizer tokenizer = load_tokenizer(folder.path());
  for (const Json& row : field<std::vector<Json>>(c.body, "encode")) {
    if (!has_special(whole, row, document)) check_encode(tokenizer, row, "vocabulary", comparison);
  }
}

}  // namespace

void run_tokenizer(const Case& c, Dtype, Comparison& comparison) {
  const Tokenizer tokenizer = load_tokenizer(file_of(c, "tokenizer"));
  if (const auto size = field<std::int64_t>(c.body, "vocab_size"); tokenizer.size() != size)
    comparison.fail(fmt::format("{} ids where {} are expected", tokenizer.size(), size));
  for (const Json& row : field<std::vector<Json>>(c.body, "encode"))
    check_encode(tokenizer, row, "tokenizer.json", comparison);
  for (const Json& row : field<std::vector<Json>>(c.body, "decode"))
    check_decode(tokenizer, row, comparison);
  check_vocabulary(c, tokenizer, comparison);
}

}  // namespace sotto::conformance
