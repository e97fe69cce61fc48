// Added tokens of tokenizer.json: strings of a text that are tokens as they stand.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nn/data/tokenizer/document.h"
#include "nn/data/tokenizer/normalizer.h"
#include "nn/data/tokenizer/split.h"
#include "nn/data/tokenizer/token_vocabulary.h"

namespace sotto {

struct AddedToken {
  std::string content;
  std::int64_t id = 0;
  bool special = false;      // DecodeOptions::skip_special_tokens leaves it out
  bool single_word = false;  // not beside letters, marks and digits
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // takes the white space behind it along
  bool normalized = true;    // it is searched in the normalized text
};

// The field "added_tokens". Throws std::invalid_argument for an id that differs from the one that
// the original gives the token: that of the vocabulary, or the next after it.
std::vector<AddedToken> read_added_tokens(const Field& list, const Vocabulary& model);

// Part of a text: an added token, or what lies between them.
struct TextSegment {
  TextRange range;
  std::int64_t id = Vocabulary::none;
};

// Finds tokens in texts: leftmost first, the longest at a place. Of tokens that are equal once
// normalized the first is found; the original finds any of them.
class TokenSearch {
 public:
  struct Entry {
    std::string text;  // what is searched
    AddedToken token;
  };
  explicit TokenSearch(std::vector<Entry> entries);
  // The segments of a text, in order.
  std::vector<TextSegment> segments(std::string_view text) const;

 private:
  const Entry* longest_at(std::string_view text, std::size_t at) const;

  std::array<std::vector<Entry>, 256> by_first_byte_;  // the longest first
};

}  // namespace sotto
