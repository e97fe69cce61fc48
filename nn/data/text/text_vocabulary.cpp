#include "nn/data/text/text_vocabulary.h"

#include "core/error.h"
#include "core/io/utf8.h"

namespace sotto {

namespace {

constexpr int byte_count = 256;
constexpr const char* replacement = "\xef\xbf\xbd";  // U+FFFD

}  // namespace

TextVocabulary TextVocabulary::bytes() {
  TextVocabulary y;
  for (int byte = 0; byte < byte_count; ++byte) y.symbols_.push_back({static_cast<char>(byte)});
  return y;
}

TextVocabulary TextVocabulary::characters(const std::string& alphabet, bool others) {
  check(!alphabet.empty(), "text vocabulary: the alphabet is empty");
  TextVocabulary y;
  for (std::size_t at = 0; at < alphabet.size();) {
    const auto [code, bytes] = utf8_character(alphabet, at);
    check(bytes > 0, "text vocabulary: the alphabet is not UTF-8 at byte {}", at);
    const std::string symbol = alphabet.substr(at, bytes);
    check(y.numbers_.emplace(code, y.size()).second, "text vocabulary: the alphabet has {} twice",
          symbol);
    y.symbols_.push_back(symbol);
    at += bytes;
  }
  if (others) {
    y.others_ = y.size();
    y.symbols_.push_back(replacement);
  }
  return y;
}

TextVocabulary::Symbol TextVocabulary::symbol(std::string_view text, std::size_t at) const {
  if (numbers_.empty()) return {static_cast<std::uint8_t>(text[at]) + std::int64_t{1}, 1};
  const auto [code, bytes] = utf8_character(text, at);
  const auto found = numbers_.find(code);
  return {found == numbers_.end() ? others_ : found->second, bytes};
}

std::vector<std::int64_t> TextVocabulary::encode(std::string_view text) const {
  std::vector<std::int64_t> y;
  for (std::size_t at = 0; at < text.size();) {
    const auto [number, bytes] = symbol(text, at);
    check(bytes > 0, "text vocabulary: the text is not UTF-8 at byte {}", at);
    check(number >= 0, "text vocabulary: {} at byte {} is not in the alphabet",
          text.substr(at, bytes), at);
    y.push_back(number);
    at += bytes;
  }
  return y;
}

std::string TextVocabulary::decode(std::span<const std::int64_t> numbers) const {
  std::string y;
  for (const std::int64_t number : numbers) {
    check(number >= 0 && number < size(), "text vocabulary: number {} is not in 0 to {}", number,
          size() - 1);
    if (number == end) break;
    y += symbols_[static_cast<std::size_t>(number)];
  }
  return y;
}

}  // namespace sotto
