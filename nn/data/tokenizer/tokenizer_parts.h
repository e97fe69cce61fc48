// The parts of a Tokenizer.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "nn/data/tokenizer/added_tokens.h"
#include "nn/data/tokenizer/normalizer.h"
#include "nn/data/tokenizer/post_processor.h"
#include "nn/data/tokenizer/pre_tokenizer.h"
#include "nn/data/tokenizer/token_decoder.h"
#include "nn/data/tokenizer/token_vocabulary.h"
#include "nn/data/tokenizer/tokenizer.h"
#include "nn/data/tokenizer/word_model.h"

namespace sotto {

struct TokenizerParts {
  Vocabulary vocabulary;  // of the model
  Vocabulary added;       // added tokens, of which the model may have some
  std::unordered_set<std::int64_t> special_ids;
  // Added tokens that are searched in the normalized text, as they are decoded: normalized.
  std::unordered_map<std::int64_t, std::string> decoded;
  TokenSearch in_text{{}};        // tokens that are searched in the text as it is
  TokenSearch in_normalized{{}};  // the others
  Normalizer normalizer;          // empty: none
  PreTokenizer pre_tokenizer;     // empty: none
  std::unique_ptr<WordModel> model;
  Template special;
  Decoder decoder;  // empty: tokens are joined by spaces
  SpecialTokens roles;

  // True if an added token of this content is special. One whose normalized text is another is not,
  // when it is decoded, as in the original.
  bool is_special(std::string_view token) const { return special_ids.contains(added.id(token)); }
};

// The tokenizer of a document like tokenizer.json; `roles` is an object of role ("bos_token", ...)
// and token. Throws std::invalid_argument as load_tokenizer().
Tokenizer make_tokenizer(const Field& document, const nlohmann::json& roles);

}  // namespace sotto
