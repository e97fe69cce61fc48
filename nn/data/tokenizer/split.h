// Cuts texts into pieces at the places that a pattern or a property of characters finds.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "nn/data/tokenizer/pattern.h"

namespace sotto {

// The treatment of a match: "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
// "Contiguous" of tokenizer.json.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// Throws SystemFailure where steps that a file asks for make much more of a text than any that is
// in use: sequences of replacements would double it again and again.
void check_growth(std::size_t bytes, std::size_t made);

// Part of a text.
struct Piece {
  std::string text;
  bool first = true;  // at the beginning of the whole text
};

// The matches of a text, in order; they do not overlap.
using Finder = std::function<std::vector<TextRange>(std::string_view)>;
// Each character with a property is a match.
Finder find_characters(bool (*property)(char32_t));
// Each place of a literal text, which is not empty, is a match.
Finder find_literal(std::string literal);
Finder find_pattern(Pattern pattern);

// How a text is cut; `inverted`: what lies between the matches counts as the match.
struct Split {
  Finder find;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool inverted = false;
};

// The pieces of a piece that are not empty.
std::vector<Piece> split(const Piece& piece, const Split& how);

}  // namespace sotto
