// Characters of texts in valid UTF-8, by their Unicode properties, which utf8proc knows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/io/utf8.h"

namespace sotto {

// The Unicode property White_Space.
bool is_white_space(char32_t code);
// The categories Nd, Nl and No.
bool is_numeric(char32_t code);
// ASCII 33-47, 58-64, 91-96 and 123-126, and the categories P.
bool is_punctuation(char32_t code);
// The categories Mn, Mc and Me.
bool is_mark(char32_t code);
// The category Mn.
bool is_nonspacing_mark(char32_t code);
// The categories Cc, Cf and Co, without tab and line ends.
bool is_control(char32_t code);
// The ideographs around which BERT puts spaces.
bool is_chinese(char32_t code);

// Calls visit(code, bytes) for each character.
template <class F>
void for_each_character(std::string_view text, F&& visit) {
  for (std::size_t at = 0; at < text.size();) {
    const auto first = static_cast<unsigned char>(text[at]);
    const Utf8Character c = first < 0x80 ? Utf8Character{first, 1} : utf8_character(text, at);
    visit(c.code, text.substr(at, c.bytes));
    at += c.bytes;
  }
}

bool is_one_character(std::string_view text);
// The text without the characters that have the property.
std::string without(std::string_view text, bool (*property)(char32_t));
// Lower case, character by character: a final sigma is as any other.
std::string lower_case(std::string_view text);
// The text without white space at its ends.
std::string_view stripped(std::string_view text, bool left, bool right);
// The text with every `from`, which is not empty, replaced.
std::string replaced(std::string_view text, std::string_view from, std::string_view to);

// Unicode's normalization forms (Unicode Standard Annex 15).
enum class NormalForm { nfc, nfd, nfkc, nfkd };
std::string normal_form(std::string_view text, NormalForm form);

// BERT's cleaning: controls, U+0000 and U+FFFD go, any white space is a space.
std::string cleaned(std::string_view text);
// The text with a space on both sides of every ideograph.
std::string chinese_spaced(std::string_view text);

}  // namespace sotto
