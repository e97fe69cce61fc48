#include <map>
#include <utility>

#include "core/io/utf8.h"
#include "nn/data/tokenizer/tokenizer_parts.h"

namespace sotto {

namespace {

SpecialTokens roles_of(const Tokenizer& tokenizer, const nlohmann::json& roles) {
  SpecialTokens y;
  const std::pair<const char*, std::optional<std::int64_t>*> names[] = {
      {"bos_token", &y.begin},   {"eos_token", &y.end},      {"unk_token", &y.unknown},
      {"pad_token", &y.padding}, {"cls_token", &y.classify}, {"sep_token", &y.separate},
      {"mask_token", &y.mask}};
  for (const auto& [name, id] : names) {
    if (roles.contains(name)) *id = tokenizer.id(roles.at(name).get<std::string>());
  }
  return y;
}

void add_tokens(const std::vector<AddedToken>& tokens, const std::string& where,
                TokenizerParts& parts) {
  std::vector<TokenSearch::Entry> in_text, in_normalized;
  for (const AddedToken& token : tokens) {
    parts.added.add(token.content, token.id, where);
    if (token.special) parts.special_ids.insert(token.id);
    if (!token.normalized) {
      in_text.push_back({token.content, token});
      continue;
    }
    const std::string text = parts.normalizer ? parts.normalizer(token.content) : token.content;
    parts.decoded[token.id] = text;
    in_normalized.push_back({text, token});
  }
  parts.in_text = TokenSearch(std::move(in_text));
  parts.in_normalized = TokenSearch(std::move(in_normalized));
}

}  // namespace

Tokenizer make_tokenizer(const Field& document, const nlohmann::json& roles) {
  document.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                 "post_processor", "decoder", "model"});
  const std::string version = document.text_or("version", "1.0");
  document.expect(version == "1.0", "version {} is not supported", excerpt(version));
  auto parts = std::make_shared<TokenizerParts>();
  const Field model = document["model"];
  if (const auto field = document.find("normalizer")) parts->normalizer = make_normalizer(*field);
  if (const auto field = document.find("pre_tokenizer"))
    parts->pre_tokenizer = make_pre_tokenizer(*field);
  if (const auto field = document.find("decoder")) parts->decoder = make_decoder(*field);
  // The type is refused first: Unigram's vocabulary has another form.
  model_type(model);
  parts->vocabulary = Vocabulary(model["vocab"]);
  parts->model = make_word_model(model, parts->vocabulary);
  if (const auto field = document.find("added_tokens"))
    add_tokens(read_added_tokens(*field, parts->vocabulary), field->where(), *parts);
  const auto post_processor = document.find("post_processor");
  parts->special = post_processor ? make_template(*post_processor, parts->vocabulary, parts->added)
                                  : plain_template();
  parts->roles = roles_of(Tokenizer(parts), roles);
  return Tokenizer(std::move(parts));
}

}  // namespace sotto
