// Models of tokenizers: a word becomes ids.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nn/data/tokenizer/document.h"
#include "nn/data/tokenizer/token_vocabulary.h"

namespace sotto {

class WordModel {
 public:
  virtual ~WordModel() = default;
  // Appends the ids of a word, which is valid UTF-8 and not empty. Threads may call it at once.
  // Throws std::invalid_argument for a word without ids where the vocabulary lacks the unknown
  // token.
  virtual void encode(std::string_view word, std::vector<std::int64_t>& ids) const = 0;
};

struct Merge {
  std::string left, right;
};

struct BpeOptions {
  std::string unknown = {};  // empty: unknown characters are left out
  std::string prefix = {};   // of characters behind the first
  std::string suffix = {};   // of the last character
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
};

// Byte pair encoding (Sennrich et al. 2016). The vocabulary outlives the model. Throws
// std::invalid_argument, with `where` and the number of the merge, for one that the vocabulary
// lacks.
std::unique_ptr<WordModel> make_bpe(const Vocabulary& vocabulary, const std::vector<Merge>& merges,
                                    const BpeOptions& options, const std::string& where);

struct WordPieceOptions {
  std::string unknown = "[UNK]";
  std::string prefix = "##";
  std::int64_t max_characters = 100;  // of a word that is not unknown
};

// The longest pieces from the left (Wu et al. 2016). The vocabulary outlives the model.
std::unique_ptr<WordModel> make_word_piece(const Vocabulary& vocabulary,
                                           const WordPieceOptions& options);
// Whole words.
std::unique_ptr<WordModel> make_word_level(const Vocabulary& vocabulary,
                                           const std::string& unknown);

// The type of a tokenizer.json's model, which old files lack. Throws std::invalid_argument for one
// that is not supported, such as Unigram.
std::string model_type(const Field& model);
// The model of a tokenizer.json, of the vocabulary in its field "vocab".
std::unique_ptr<WordModel> make_word_model(const Field& model, const Vocabulary& vocabulary);

}  // namespace sotto
