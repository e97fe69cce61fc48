// Regular expressions (PCRE2) for the paths of modules, "h.0.attn.c_attn".
#pragma once

#include <memory>
#include <string>

namespace sotto::nn {

// A compiled regular expression.
class PathPattern {
 public:
  // Throws std::invalid_argument, with PCRE2's reason, for text that is no regular expression.
  explicit PathPattern(const std::string& text);
  // True if the expression fits the whole path.
  bool fits(const std::string& path) const;
  // True if it fits the whole path or an ending of it behind a dot: "c_attn" fits
  // "h.0.attn.c_attn".
  bool fits_ending(const std::string& path) const;

 private:
  bool fits_behind(const std::string& path, std::size_t start) const;

  std::string text_;
  std::shared_ptr<const void> code_;  // pcre2_code
};

// The expression of a text that stands for itself.
std::string quoted(const std::string& text);

}  // namespace sotto::nn
