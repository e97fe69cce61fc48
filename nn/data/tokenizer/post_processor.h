// Post-processors of tokenizer.json: special tokens around one text or a pair.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "nn/data/tokenizer/document.h"
#include "nn/data/tokenizer/token_vocabulary.h"

namespace sotto {

// The parts of a row of tokens.
struct TemplatePart {
  enum class Kind { text, pair, special } kind = Kind::text;
  std::vector<std::int64_t> ids = {};  // of special tokens
  std::int64_t type = 0;               // token type
};

struct Template {
  std::vector<TemplatePart> single, pair;

  // The number of special tokens.
  std::int64_t special_count(bool has_pair) const;
};

// One text, or a pair with types 0 and 1, without special tokens.
Template plain_template();
// Throws std::invalid_argument for a type that is not supported and for special tokens without a
// token in either vocabulary.
Template make_template(const Field& post_processor, const Vocabulary& model,
                       const Vocabulary& added);

}  // namespace sotto
