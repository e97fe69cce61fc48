// A value of a JSON document that knows where it stands: messages name the file and the field.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace sotto {

// All throw std::invalid_argument, which begins with where(), for a value of another kind. The
// document outlives its fields.
class Field {
 public:
  // `where` begins messages: the file, and the path within the document.
  Field(const nlohmann::json& value, std::string where)
      : value_(&value), where_(std::move(where)) {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& where() const { return where_; }
  template <class... Args>
  void expect(bool ok, fmt::format_string<const Args&...> text, const Args&... args) const {
    if (!ok) fail(where_ + ": " + fmt::format(text, args...));
  }

  // A key of an object: an error if it is missing or null; nullopt then.
  Field operator[](const std::string& key) const;
  std::optional<Field> find(const std::string& key) const;
  // The elements of a list.
  std::vector<Field> list() const;
  // A string of valid UTF-8.
  std::string text() const;
  // A whole number from 0 to 2^31 - 1.
  std::int64_t number() const;
  // The value of a key; `otherwise` if it is missing or null.
  bool flag(const std::string& key, bool otherwise) const;
  std::string text_or(const std::string& key, const std::string& otherwise) const;
  std::int64_t number_or(const std::string& key, std::int64_t otherwise) const;
  // Refuses an object with other keys than these and "type", unless they are null or false.
  void only(std::initializer_list<const char*> keys) const;

 private:
  const nlohmann::json* value_;
  std::string where_;
};

}  // namespace sotto
