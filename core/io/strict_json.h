// Parses JSON. Refuses duplicate keys, and more nesting or more entries than the format has; the
// parser alone would accept them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace sotto {

struct JsonLimits {
  std::size_t depth = 0;        // the deepest nesting of objects and lists
  std::size_t max_entries = 0;  // the largest number of keys of an object
  bool comments = false;        // whether // and /* comments */ are skipped
};

// Returns the JSON object that the text is. Throws std::invalid_argument, which begins with
// `where`, the noun for the text in messages.
nlohmann::json parse_json_object(std::string_view text, const std::string& where,
                                 const JsonLimits& limits);

// Returns whether the text, JSON or not, opens more objects and lists within each other than
// `depth`. The JSON library copies and prints recursively, so deep nesting would overflow the
// stack.
bool nested_deeper(std::string_view text, std::size_t depth);

}  // namespace sotto
