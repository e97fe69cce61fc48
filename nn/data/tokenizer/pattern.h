// Regular expressions by PCRE2; those of tokenizer.json are Oniguruma's in Ruby's syntax.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sotto {

// A part of a text, in bytes.
struct TextRange {
  std::size_t begin = 0, end = 0;
};

// A compiled pattern, which threads may share.
class Pattern {
 public:
  // Translates what differs: \s, \S, \w, \b, \B, \h and the option m. Throws std::invalid_argument,
  // which begins with `where`, for a pattern that PCRE2 refuses or for which its meaning would be
  // another.
  Pattern(std::string_view expression, const std::string& where);
  // A pattern in PCRE2's own syntax.
  static Pattern of_pcre2(const std::string& expression);

  // The matches from left to right, which do not overlap; `text` is valid UTF-8. Throws
  // SystemFailure if one takes more steps or memory than PCRE2 allows.
  std::vector<TextRange> matches(std::string_view text) const;
  // True if the text begins with a match.
  bool begins(std::string_view text) const;
  // True if the whole text is a match.
  bool fits(std::string_view text) const;

 private:
  struct Code;
  explicit Pattern(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

}  // namespace sotto
