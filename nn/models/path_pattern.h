// Regular expressions (PCRE2) for the paths of modules, "h.0.attn.c_attn".
#pragma once

#include <string>

#include "nn/data/tokenizer/pattern.h"

namespace sotto::nn {

// A compiled regular expression.
class PathPattern {
 public:
  // Throws std::invalid_argument, with PCRE2's reason, for text that is no regular expression.
  explicit PathPattern(const std::string& text) : pattern_(Pattern::of_pcre2(text)) {}
  // True if the expression fits the whole path. Throws SystemFailure if that takes too many steps.
  bool fits(const std::string& path) const { return pattern_.fits(path); }
  // True if it fits the whole path or an ending of it behind a dot: "c_attn" fits
  // "h.0.attn.c_attn".
  bool fits_ending(const std::string& path) const;

 private:
  Pattern pattern_;
};

// The expression of a text that stands for itself.
std::string quoted(const std::string& text);

}  // namespace sotto::nn
