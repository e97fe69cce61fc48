#include <algorithm>

#include "core/io/utf8.h"
#include "nn/data/tokenizer/characters.h"
#include "nn/data/tokenizer/word_model.h"

namespace sotto {

namespace {

// The unknown token's id.
std::int64_t unknown_id(const Vocabulary& vocabulary, const std::string& unknown,
                        std::string_view word) {
  const std::int64_t id = vocabulary.id(unknown);
  check(id != Vocabulary::none,
        "tokenizer: {} has no token, and the vocabulary no unknown token {}", excerpt(word),
        excerpt(unknown));
  return id;
}

class WordPiece final : public WordModel {
 public:
  WordPiece(const Vocabulary& vocabulary, WordPieceOptions options)
      : vocabulary_(vocabulary), options_(std::move(options)) {}

  void encode(std::string_view word, std::vector<std::int64_t>& ids) const override {
    const std::size_t before = ids.size();
    std::int64_t characters = 0;
    for_each_character(word, [&](char32_t, std::string_view) { ++characters; });
    bool known = characters <= options_.max_characters;
    for (std::size_t at = 0; known && at < word.size();) {
      const std::size_t bytes = append_longest(word, at, ids);
      known = bytes > 0;
      at += bytes;
    }
    if (known) return;
    ids.resize(before);
    ids.push_back(unknown_id(vocabulary_, options_.unknown, word));
  }

 private:
  // Appends the longest token at a place; returns the bytes of the word that it takes, or 0.
  std::size_t append_longest(std::string_view word, std::size_t at,
                             std::vector<std::int64_t>& ids) const {
    std::string piece = at == 0 ? "" : options_.prefix;
    const std::size_t prefix = piece.size();
    if (prefix > vocabulary_.longest()) return 0;
    piece += word.substr(at, vocabulary_.longest() - prefix);
    for (; piece.size() > prefix; piece.pop_back()) {
      const std::size_t end = at + piece.size() - prefix;
      constexpr unsigned continuation = 0x80, continuation_mask = 0xc0;
      if (end < word.size() &&
          (static_cast<unsigned char>(word[end]) & continuation_mask) == continuation)
        continue;  // within a character
      if (const std::int64_t id = vocabulary_.id(piece); id != Vocabulary::none) {
        ids.push_back(id);
        return piece.size() - prefix;
      }
    }
    return 0;
  }

  const Vocabulary& vocabulary_;
  WordPieceOptions options_;
};

class WordLevel final : public WordModel {
 public:
  WordLevel(const Vocabulary& vocabulary, std::string unknown)
      : vocabulary_(vocabulary), unknown_(std::move(unknown)) {}

  void encode(std::string_view word, std::vector<std::int64_t>& ids) const override {
    const std::int64_t id = vocabulary_.id(word);
    ids.push_back(id != Vocabulary::none ? id : unknown_id(vocabulary_, unknown_, word));
  }

 private:
  const Vocabulary& vocabulary_;
  std::string unknown_;
};

}  // namespace

std::unique_ptr<WordModel> make_word_piece(const Vocabulary& vocabulary,
                                           const WordPieceOptions& options) {
  return std::make_unique<WordPiece>(vocabulary, options);
}

std::unique_ptr<WordModel> make_word_level(const Vocabulary& vocabulary,
                                           const std::string& unknown) {
  return std::make_unique<WordLevel>(vocabulary, unknown);
}

}  // namespace sotto
