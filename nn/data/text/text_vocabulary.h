// Numbers for the symbols of text: bytes, or the characters of an alphabet.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sotto {

// Number 0 stands for the end of a text and for its padding; the symbols follow. The vocabulary
// must be public: an alphabet collected from private texts would reveal rare characters.
//
//   const TextVocabulary letters = TextVocabulary::characters("abcdefghijklmnopqrstuvwxyz '",
//   true); letters.decode(letters.encode("it's"));
class TextVocabulary {
 public:
  // The number that pads, and ends a text.
  static constexpr std::int64_t end = 0;

  // The 256 bytes: byte b is number b + 1.
  static TextVocabulary bytes();
  // The characters of an alphabet in UTF-8, in its order. `others` adds one number for all further
  // characters; without it they are an error. Throws std::invalid_argument for an alphabet that is
  // empty, not UTF-8 or has a character twice.
  static TextVocabulary characters(const std::string& alphabet, bool others = false);

  // The largest number plus 1: the number of rows of an embedding.
  std::int64_t size() const { return std::ssize(symbols_); }
  // Throws std::invalid_argument, with the offset, for bytes that are not UTF-8 and for characters
  // without a number; any bytes have numbers in the vocabulary of bytes.
  std::vector<std::int64_t> encode(std::string_view text) const;
  // The text up to the first `end`, with U+FFFD for further characters. Throws
  // std::invalid_argument for a number outside [0, size).
  std::string decode(std::span<const std::int64_t> numbers) const;

  // The symbol at an offset below the text's size.
  struct Symbol {
    std::int64_t number = -1;  // -1: it has none
    std::size_t bytes = 0;     // 0: not UTF-8
  };
  // Number and length of the symbol there.
  Symbol symbol(std::string_view text, std::size_t at) const;

 private:
  TextVocabulary() = default;

  std::vector<std::string> symbols_ = {""};   // by number
  std::map<char32_t, std::int64_t> numbers_;  // of characters; empty for bytes
  std::int64_t others_ = -1;
};

}  // namespace sotto
