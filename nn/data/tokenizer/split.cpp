#include "nn/data/tokenizer/split.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "nn/data/tokenizer/characters.h"

namespace sotto {

void check_growth(std::size_t bytes, std::size_t made) {
  // A character becomes 18 at most in a normal form, a byte two characters, a space three bytes.
  constexpr std::size_t most = 256, slack = std::size_t{1} << 16;
  if (made / most <= bytes || made <= slack) return;
  throw SystemFailure(fmt::format("tokenizer: a text of {} bytes would become {}", bytes, made));
}

namespace {

struct Part {
  TextRange range;
  bool match = false;
};

// Matches and gaps, which together are the text.
std::vector<Part> parts_of(std::string_view text, const Split& how) {
  std::vector<Part> y;
  std::size_t at = 0;
  for (const TextRange& match : how.find(text)) {
    if (at < match.begin) y.push_back({{at, match.begin}, how.inverted});
    y.push_back({match, !how.inverted});
    at = match.end;
  }
  if (at < text.size()) y.push_back({{at, text.size()}, how.inverted});
  return y;
}

// Joins each match to its neighbour before it in the order of the list; a match behind a match, or
// without such a neighbour, stays alone.
void merge_with_previous(std::vector<Part>& parts) {
  std::vector<Part> y;
  bool after_match = false;
  for (const Part& part : parts) {
    if (part.match && !after_match && !y.empty()) {
      y.back().range = {std::min(y.back().range.begin, part.range.begin),
                        std::max(y.back().range.end, part.range.end)};
    } else {
      y.push_back(part);
    }
    after_match = part.match;
  }
  parts = std::move(y);
}

void merge_contiguous(std::vector<Part>& parts) {
  std::vector<Part> y;
  for (const Part& part : parts) {
    if (!y.empty() && y.back().match == part.match) {
      y.back().range.end = part.range.end;
    } else {
      y.push_back(part);
    }
  }
  parts = std::move(y);
}

void apply(SplitBehavior behavior, std::vector<Part>& parts) {
  switch (behavior) {
    case SplitBehavior::removed:
      std::erase_if(parts, [](const Part& part) { return part.match; });
      break;
    case SplitBehavior::isolated: break;
    case SplitBehavior::merged_with_previous: merge_with_previous(parts); break;
    case SplitBehavior::merged_with_next:
      std::reverse(parts.begin(), parts.end());
      merge_with_previous(parts);
      std::reverse(parts.begin(), parts.end());
      break;
    case SplitBehavior::contiguous: merge_contiguous(parts); break;
  }
}

}  // namespace

Finder find_characters(bool (*property)(char32_t)) {
  return [property](std::string_view text) {
    std::vector<TextRange> y;
    std::size_t at = 0;
    for_each_character(text, [&](char32_t code, std::string_view bytes) {
      if (property(code)) y.push_back({at, at + bytes.size()});
      at += bytes.size();
    });
    return y;
  };
}

Finder find_literal(std::string literal) {
  return [literal = std::move(literal)](std::string_view text) {
    std::vector<TextRange> y;
    for (std::size_t at = text.find(literal); at != text.npos;
         at = text.find(literal, y.back().end))
      y.push_back({at, at + literal.size()});
    return y;
  };
}

Finder find_pattern(Pattern pattern) {
  return [pattern = std::move(pattern)](std::string_view text) { return pattern.matches(text); };
}

std::vector<Piece> split(const Piece& piece, const Split& how) {
  std::vector<Part> parts = parts_of(piece.text, how);
  apply(how.behavior, parts);
  std::vector<Piece> y;
  y.reserve(parts.size());
  for (const auto& [range, match] : parts) {
    if (range.begin == range.end) continue;
    y.push_back(
        {piece.text.substr(range.begin, range.end - range.begin), piece.first && range.begin == 0});
  }
  return y;
}

}  // namespace sotto
