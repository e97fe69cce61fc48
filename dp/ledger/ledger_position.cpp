#include "dp/ledger/ledger_position.h"

#include <limits>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/io/strict_json.h"
#include "core/io/utf8.h"

namespace sotto {

namespace {

std::int64_t whole_number(const nlohmann::json& object, const char* key) {
  const auto field = object.find(key);
  check(field != object.end() && field->is_number_unsigned() &&
            field->get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max(),
        "ledger position: {} is not a whole number", key);
  return field->get<std::int64_t>();
}

std::string digits(const nlohmann::json& object, const char* key, std::size_t size) {
  const auto field = object.find(key);
  check(field != object.end() && field->is_string(), "ledger position: {} is not a string", key);
  const auto text = field->get<std::string>();
  check(text.size() == size && text.find_first_not_of("0123456789abcdef") == std::string::npos,
        "ledger position: {} is not {} hexadecimal digits: {}", key, size, excerpt(text));
  return text;
}

}  // namespace

std::string to_json(const LedgerPosition& mark) {
  const nlohmann::ordered_json object = {{"ledger", mark.ledger},     {"run", mark.run},
                                         {"releases", mark.releases}, {"lines", mark.lines},
                                         {"bytes", mark.bytes},       {"chain", mark.checksum}};
  return object.dump();
}

LedgerPosition ledger_position_from_json(const std::string& text) {
  constexpr std::size_t fields = 6, id_digits = 32, checksum_digits = 64;
  check(!nested_deeper(text, 1), "ledger position: nested: {}", excerpt(text));
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, false);
  check(object.is_object(), "ledger position: not an object: {}", excerpt(text));
  check(object.size() == fields, "ledger position: {} fields instead of {}", object.size(), fields);
  return {.ledger = digits(object, "ledger", id_digits),
          .run = digits(object, "run", id_digits),
          .releases = whole_number(object, "releases"),
          .lines = whole_number(object, "lines"),
          .bytes = static_cast<std::uint64_t>(whole_number(object, "bytes")),
          .checksum = digits(object, "chain", checksum_digits)};
}

}  // namespace sotto
