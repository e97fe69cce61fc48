#include "sotto/dp/ledger_contents.h"

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "catch.h"
#include "sotto/core/error.h"

using namespace sotto;

namespace {

const Event sampled{1.1, Sampling::poisson, 0.01};
const std::string header =
    R"({"sotto_ledger":1,"unit":"one training example","relation":"add or remove one"})"
    "\n";
const std::string event_text = to_json(sampled);

std::string reserve(int count, int first_draw) {
  return fmt::format("{{\"reserve\":{},\"first_draw\":{},\"event\":{}}}\n", count, first_draw,
                     event_text);
}

std::string settle(int used, int next_draw) {
  return fmt::format("{{\"settle\":{},\"next_draw\":{}}}\n", used, next_draw);
}

// The text of the SystemFailure; empty when the text is a ledger.
std::string failure(const std::string& text) {
  try {
    parse_ledger(text, "f");
    return "";
  } catch (const SystemFailure& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("a malformed line is an error that names file and line") {
  const std::string good = header + reserve(16, 0) + settle(5, 5);
  const std::vector<std::pair<std::string, int>> texts = {
      {"", 1},
      {"\n", 1},
      {"{}\n", 1},
      {"hello", 1},
      {reserve(16, 0), 1},
      {R"({"sotto_ledger":2,"unit":"u","relation":"r"})"
       "\n",
       1},
      {R"({"sotto_ledger":"1","unit":"u","relation":"r"})"
       "\n",
       1},
      {R"({"sotto_ledger":1,"unit":3,"relation":"r"})"
       "\n",
       1},
      {R"({"sotto_ledger":1,"unit":"u"})"
       "\n",
       1},
      {good + header, 4},
      {good + "\n", 4},
      {good + settle(1, 1), 4},
      {good + "junk", 4},
      {good + "junk\n", 4},
      {good + "{\"reserve\":\n" + settle(5, 5), 4},
      {good + "{\"unknown\":1}\n", 4},
      {good + "{\"not_private\":1}\n", 4},
      {good + "{\"not_private\":\"a\"}x", 4},
      {good + reserve(16, 4), 4},
      {good + reserve(0, 5), 4},
      {good + reserve(-1, 5), 4},
      {good + reserve(2000000, 5), 4},
      {good + R"({"reserve":1.5,"first_draw":5,"event":)" + event_text + "}\n", 4},
      {good + R"({"reserve":1,"first_draw":"5","event":)" + event_text + "}\n", 4},
      {good + R"({"reserve":1,"first_draw":9223372036854775808,"event":)" + event_text + "}\n", 4},
      {good + R"({"reserve":1,"first_draw":5})"
              "\n",
       4},
      {good + R"({"reserve":1,"first_draw":5,"event":{}})"
              "\n",
       4},
      {good + R"({"reserve":1e999,"first_draw":5,"event":{}})", 4},
      {header + reserve(16, 0) + settle(17, 17), 3},
      {header + reserve(16, 0) + settle(-1, 5), 3},
      {header + reserve(16, 0) + settle(5, 4), 3},
      {header + reserve(16, 0) + settle(5, 17), 3}};
  for (const auto& [text, line] : texts) {
    CAPTURE(text);
    const std::string where = fmt::format("ledger: f:{}: ", line);
    CHECK(failure(text).find(where) == 0);
  }
  CHECK(parse_ledger(good, "f").contents.events.front().second == 5);
}

TEST_CASE("a mutated file is refused or read as a ledger that reopens the same") {
  std::mt19937 random(5);
  const std::string good = header + reserve(16, 0) + settle(5, 5) + reserve(8, 5) +
                           "{\"not_private\":\"seeded\"}\n" + reserve(8, 13) + settle(2, 15);
  int accepted = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string text = good;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
      const std::size_t at = random() % text.size(), length = random() % 20;
      const auto kind = random() % 4;
      if (kind == 0) text[at] = static_cast<char>(random());
      if (kind == 1) text[at] = good[random() % good.size()];
      if (kind == 2 && length < text.size()) text.erase(at, length);
      if (kind == 3) text.insert(at, good.substr(random() % good.size(), length));
    }
    try {
      const LedgerText first = parse_ledger(text, "f");
      const std::string kept = text.substr(0, first.size) + (first.missing_newline ? "\n" : "");
      const LedgerText second = parse_ledger(kept, "f");
      CHECK(second.size == kept.size());
      CHECK(second.contents.events == first.contents.events);
      CHECK(second.contents.next_draw == first.contents.next_draw);
      for (const auto& [event, count] : first.contents.events) CHECK(count > 0);
      ++accepted;
    } catch (const SystemFailure& failure) {
      CHECK(std::string(failure.what()).find("ledger: f:") == 0);
    }
  }
  CHECK(accepted > 50);
  CHECK(accepted < 2500);
}
