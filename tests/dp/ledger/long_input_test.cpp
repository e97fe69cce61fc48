// What parsers say of input of any length and depth: a short line, and no overflow of the stack.
#include <functional>

#include <nlohmann/json.hpp>

#include "core/devices.h"
#include "core/io/strict_json.h"
#include "core/io/utf8.h"
#include "dp/engine/privacy_statement.h"
#include "dp/ledger/ledger_position.h"
#include "memory/planning/policy.h"
#include "nn/data/tables/table_schema.h"
#include "tests/support/catch.h"
#include "tests/support/ledger_files.h"

namespace sotto {
namespace {

using Json = nlohmann::ordered_json;
using Parser = std::function<void(const std::string& text)>;

constexpr std::size_t long_text = 20'000;

std::string nested(char open, char close) {
  return std::string(long_text, open) + std::string(long_text, close);
}

// In the place of a value.
const std::vector<std::string>& nasty_values() {
  static const std::vector<std::string> all = {nested('[', ']'),
                                               std::string(long_text, '['),
                                               [] {
                                                 std::string objects;
                                                 for (std::size_t k = 0; k < long_text; ++k)
                                                   objects += "{\"a\":";
                                                 return objects + "1" + std::string(long_text, '}');
                                               }(),
                                               '"' + std::string(long_text, 'x') + '"',
                                               '"' + std::string(long_text, 'x'),
                                               std::string(long_text, '9'),
                                               "[" + std::string(long_text, '9') + "]",
                                               "{\"" + std::string(long_text, 'k') + "\":1}"};
  return all;
}

// The texts with a nasty value in the place of each value of an object, and with a long key.
std::vector<std::string> spoiled(const std::string& object) {
  std::vector<std::string> all;
  const Json whole = Json::parse(object);
  for (const std::string& nasty : nasty_values()) {
    all.push_back(nasty);
    for (const auto& [key, value] : whole.items()) {
      Json changed = whole;
      changed[key] = "HERE";
      std::string text = changed.dump();
      all.push_back(text.replace(text.find("\"HERE\""), 6, nasty));
      if (!value.is_object()) continue;
      for (const char* const inner : {"\"HERE\"", "{\"a\":\"HERE\"}"}) {
        changed = whole;
        changed[key]["more"] = Json::parse(inner);
        text = changed.dump();
        all.push_back(text.replace(text.find("\"HERE\""), 6, nasty));
      }
    }
  }
  Json changed = whole;
  changed[std::string(long_text, 'k')] = 1;
  all.push_back(changed.dump());
  return all;
}

// The errors of a parser, which are the only way out, are short.
void check_short(const Parser& parse, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    CAPTURE(excerpt(text));
    std::string message;
    try {
      parse(text);
    } catch (const std::invalid_argument& error) {
      message = error.what();
    } catch (const SystemFailure& error) {
      message = error.what();
    }
    CHECK(message.size() < 500);
  }
}

}  // namespace

TEST_CASE("an excerpt of a text is short, printable and tells the length") {
  CHECK(excerpt("a text") == "a text");
  CHECK(excerpt("a\ntext") == "a\\x0atext");
  CHECK(excerpt(std::string(1000, 'x'), 3) == "xxx... (1000 bytes)");
}

TEST_CASE("nesting is counted outside strings, in a text that need not be JSON") {
  CHECK_FALSE(nested_deeper(R"({"a":[1,{"b":2}],"c":[[]]})", 3));
  CHECK(nested_deeper(R"({"a":[1,{"b":2}]})", 2));
  CHECK_FALSE(nested_deeper(R"({"a[[[[":"{{{\"[[[","b":"\\"})", 1));
  CHECK(nested_deeper(R"({"b":"\\","c":[]})", 1));
  CHECK(nested_deeper("]]]][[", 1));
  CHECK_FALSE(nested_deeper("", 0));
}

TEST_CASE("parsers of events, positions and statements quote a part of long input alone") {
  check_short(event_from_json, spoiled(to_json(sampled)));
  check_short(event_from_json,
              spoiled(to_json(Event{.sampling = Sampling::partition, .batches = 3})));
  check_short(ledger_position_from_json,
              spoiled(to_json(LedgerPosition{.ledger = std::string(32, 'a'),
                                             .run = std::string(32, 'b'),
                                             .checksum = std::string(64, 'c')})));
  check_short(statement_from_json, spoiled(to_json(PrivacyStatement())));
}

TEST_CASE("no line of a ledger is quoted whole, or overflows the stack") {
  const auto lines = {header,
                      reserve(1, 0),
                      settle(1, 1),
                      population_line({some_run, {}, 0, {}}, 9),
                      plan_line({some_run, {}, 0, {}}, {{sampled, 9}}),
                      selection_line({some_run, {}, 0, {}}, {{1, 0.1}, {{sampled, 3}}}),
                      not_private_line({some_run, {}, 0, {}}, "a reason")};
  for (const std::string& line : lines) {
    for (std::string& text : spoiled(line)) {
      if (!text.ends_with('}')) text += '}';
      const std::string file = line == header ? file_of({text}) : file_of({header, text});
      check_short([](const std::string& of) { parse_ledger(of, "f"); },
                  {file, file.substr(0, file.size() - 80)});
    }
  }
}

TEST_CASE("a line of three million brackets does not overflow the stack") {
  constexpr std::size_t deep = 3'000'000;
  std::string line = reserve(1, 0);
  const std::size_t event = line.find(to_json(sampled));
  line.replace(event, to_json(sampled).size(), std::string(deep, '[') + std::string(deep, ']'));
  const std::string file = file_of({header, line});
  check_short([](const std::string& of) { parse_ledger(of, "f"); },
              {file, file.substr(0, file.size() / 2)});
  check_short(event_from_json, {std::string(deep, '[') + std::string(deep, ']')});
}

TEST_CASE("parsers of schemas, sizes and devices quote a part of long input alone") {
  check_short(
      [](const std::string& text) { TableSchema::from_json(text); },
      spoiled(R"({"columns":[{"name":"x","kind":"number","min":0,"max":1}],"header":true})"));
  check_short([](const std::string& text) { TableSchema::from_json(text); },
              [] {
                std::vector<std::string> all;
                for (const std::string& column :
                     spoiled(R"({"name":"x","kind":"category","categories":["a"],"other":true})"))
                  all.push_back("{\"columns\":[" + column + "]}");
                return all;
              }());
  check_short([](const std::string& text) { memory::parse_bytes(text); }, nasty_values());
  check_short([](const std::string& text) { parse_device(text); }, nasty_values());
}

}  // namespace sotto
