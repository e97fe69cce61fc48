// Tokens and their ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "nn/data/tokenizer/document.h"

namespace sotto {

// Finds strings by views of them.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
};

class Vocabulary {
 public:
  static constexpr std::int64_t none = -1;

  Vocabulary() = default;
  // An object {token: id}. Throws std::invalid_argument for two tokens of one id.
  explicit Vocabulary(const Field& vocabulary);

  // An added token. Throws std::invalid_argument, which begins with `where`, if token or id are
  // there already.
  void add(const std::string& token, std::int64_t id, const std::string& where);
  std::int64_t id(std::string_view token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? none : found->second;
  }
  const std::string* token(std::int64_t id) const {
    const auto found = tokens_.find(id);
    return found == tokens_.end() ? nullptr : found->second;
  }
  std::int64_t count() const { return std::ssize(ids_); }
  // The largest id plus 1.
  std::int64_t end() const { return end_; }
  // The bytes of the longest token.
  std::size_t longest() const { return longest_; }

 private:
  std::unordered_map<std::string, std::int64_t, TextHash, std::equal_to<>> ids_;
  std::unordered_map<std::int64_t, const std::string*> tokens_;  // into ids_, whose keys stay
  std::int64_t end_ = 0;
  std::size_t longest_ = 0;
};

}  // namespace sotto
