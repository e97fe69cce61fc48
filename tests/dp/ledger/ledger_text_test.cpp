#include "dp/ledger/ledger_text.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/io/sha256.h"
#include "tests/support/catch.h"
#include "tests/support/ledger_files.h"

using namespace sotto;

namespace {

const std::vector<std::string> good = {header, reserve(16, 0), settle(5, 5)};

// The text of the SystemFailure; empty when the text is a ledger.
std::string failure(const std::string& text) {
  try {
    parse_ledger(text, "f");
    return "";
  } catch (const SystemFailure& error) {
    return error.what();
  }
}

// Valid lines, and more.
std::string with(const std::vector<std::string>& more) {
  std::vector<std::string> lines = good;
  lines.insert(lines.end(), more.begin(), more.end());
  return file_of(lines);
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const std::size_t at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), by);
}

}  // namespace

TEST_CASE("a line's checksum is that of the line before it and its own text") {
  const std::string id(32, 'a');
  const std::string first = R"({"sotto_ledger":4,"id":")" + id +
                            R"(","unit":"one training example","relation":"add or remove one")";
  const std::string second = R"({"run":")" + some_run + R"(","not_private":"a")";
  const std::string text = first + R"(,"chain":")" + sha256(first) + "\"}\n" + second +
                           R"(,"chain":")" + sha256(sha256(first) + second) + "\"}\n";
  const LedgerText read = parse_ledger(text, "f");
  CHECK(read.contents.id == id);
  CHECK(read.contents.reasons == std::vector<std::string>{"a"});
  CHECK(read.lines == 2);
  CHECK(read.size == text.size());
  CHECK(file_of({header, not_private_line({some_run, {}, 0, {}}, "a")}) == text);
}

TEST_CASE("the header says who is protected, and from whom, strictly") {
  const LedgerHeader users{"one user", NeighboringRelation::replace_one};
  const std::string line = header_line({std::string(32, '0'), users, {}, {}});
  CHECK(line.find(R"("unit":"one user","relation":"replace one")") != std::string::npos);
  CHECK(parse_ledger(file_of({line}), "f").contents.header == users);
  for (const auto& [what, by] : std::vector<std::pair<std::string, std::string>>{
           {"replace one", "replace_one"},
           {"\"one user\"", "3"},
           {",\"relation\":\"replace one\"", ""},
           {"\"sotto_ledger\":4", "\"sotto_ledger\":1"},
           {"\"sotto_ledger\":4", "\"sotto_ledger\":5"},
           {"\"sotto_ledger\":4", "\"sotto_ledger\":\"4\""},
           {"\"id\":\"0000", "\"id\":\"000"},
           {"\"id\":\"0000", "\"id\":\"000g"},
           {"{\"sotto", "{\"more\":1,\"sotto"}}) {
    CAPTURE(what, by);
    CHECK(failure(file_of({replaced(line, what, by)})).find("ledger: f:1: ") == 0);
  }
}

TEST_CASE("a file of version 2 is read, and learns the population") {
  const std::string old = replaced(header, "\"sotto_ledger\":4", "\"sotto_ledger\":2");
  const LedgerRun run{some_run, {}, 0, {}};
  CHECK(parse_ledger(file_of({old, reserve(16, 0)}), "f").contents.population == std::nullopt);
  const std::string said = population_line(run, 60);
  CHECK(parse_ledger(file_of({old, reserve(16, 0), said, said}), "f").contents.population == 60);
  CHECK(failure(file_of({header, said, population_line(run, 61)}))
            .find("ledger: f:3: a population of 61, where an earlier run said 60") == 0);
}

TEST_CASE("a malformed line is an error that names file and line") {
  const std::string run = R"({"run":")" + some_run + "\",", event = to_json(sampled);
  const std::vector<std::string> fourth = {
      header,
      settle(1, 1),
      "{\"unknown\":1}",
      "{\"not_private\":\"a\"}",
      "{\"run\":\"b\",\"not_private\":\"a\"}",
      run + "\"not_private\":1}",
      run + "\"not_private\":\"a\",\"more\":1}",
      run + "\"settle\":1}",
      population_line({some_run, {}, 0, {}}, 0),
      run + "\"population\":60.5}",
      run + "\"population\":60,\"more\":1}",
      settle(1, 6, other_run),
      reserve(16, 4),
      reserve(0, 5),
      reserve(-1, 5),
      reserve(max_reservation + 1, 5),
      reserve(1, end_of_draws),
      run + R"("reserve":1.5,"first_draw":5,"event":)" + event + "}",
      run + R"("reserve":1,"first_draw":"5","event":)" + event + "}",
      run + R"("reserve":1,"first_draw":9223372036854775808,"event":)" + event + "}",
      run + R"("reserve":1e999,"first_draw":5,"event":)" + event + "}",
      run + R"("reserve":1,"first_draw":5})",
      run + R"("reserve":1,"first_draw":5,"event":{}})"};
  for (const std::string& line : fourth) {
    CAPTURE(line);
    CHECK(failure(with({line})).find("ledger: f:4: ") == 0);
  }
  for (const char* const end : {"\n", "junk", "junk\n", "{}\n", "{\"a\":\"b\"}x"}) {
    CAPTURE(end);
    CHECK(failure(with({}) + end).find("ledger: f:4: ") == 0);
  }
  for (const char* const start : {"", "\n", "{}\n", "hello", "[]\n"})
    CHECK(failure(start).find("ledger: f:1: ") == 0);
  CHECK(failure(file_of({reserve(16, 0)})).find("ledger: f:1: not a ledger") == 0);
  for (const std::string& line : {settle(17, 17), settle(-1, 5), settle(5, 4), settle(5, 17)})
    CHECK(failure(file_of({header, reserve(16, 0), line})).find("ledger: f:3: ") == 0);
}

TEST_CASE("a line that was edited, removed, doubled or moved is found") {
  const std::string text = with({reserve(8, 5), settle(2, 7), reserve(8, 7)});
  const std::vector<std::string> lines = lines_of(text);
  const auto joined = [](const std::vector<std::string>& some) {
    return std::accumulate(some.begin(), some.end(), std::string());
  };
  const auto found_at = [&](const std::vector<std::string>& some, std::size_t line) {
    CAPTURE(line);
    CHECK(
        failure(joined(some)).find(fmt::format("ledger: f:{}: the checksum does not fit", line)) ==
        0);
  };
  CHECK(failure(text).empty());
  for (std::size_t k = 0; k < lines.size(); ++k) {
    const auto at = static_cast<std::ptrdiff_t>(k);
    std::vector<std::string> some = lines;
    some.insert(some.begin() + at, lines[k]);
    if (k > 0) found_at(some, k + 2);
    if (k + 1 == lines.size()) continue;
    some = lines;
    some.erase(some.begin() + at);
    if (k > 0) found_at(some, k + 1);
    some = lines;
    std::swap(some[k], some[k + 1]);
    if (k > 0) found_at(some, k + 1);
  }
  found_at({replaced(lines[0], "training", "Training"), lines[1]}, 1);
  found_at({lines[0], replaced(lines[1], "16", "15"), lines[2]}, 2);
  found_at({lines[0], lines[1], replaced(lines[2], "\"settle\":5", "\"settle\":4")}, 3);
  // A line of another ledger.
  const std::string other = header_line({std::string(32, 'f'), {}, {}, {}});
  found_at({lines[0], lines_of(file_of({other, reserve(16, 0)}))[1]}, 2);
}

TEST_CASE("runs take turns, each with reservations and draws of its own") {
  const LedgerText read =
      parse_ledger(file_of({header, reserve(16, 0), reserve(8, 3, everybody, other_run),
                            settle(5, 6), reserve(4, 6), settle(2, 6, other_run), reserve(10, 20)}),
                   "f");
  REQUIRE(read.contents.runs.size() == 2);
  // An open reservation that another one follows counts in full.
  CHECK(read.contents.runs[0].events == EventCounts{{sampled, 5 + 4 + 10}});
  CHECK(read.contents.runs[0].next_draw == 30);
  CHECK(read.contents.runs[1].events == EventCounts{{everybody, 2}});
  CHECK(read.contents.runs[1].next_draw == 6);
  CHECK(read.contents.events() == EventCounts{{sampled, 19}, {everybody, 2}});
}

TEST_CASE("the number of paid batches is at most that charged by their run's first ones") {
  const Event first{1.1, Sampling::partition, 1, 4};
  Event paid = first, longer = first;
  paid.paid = true;
  longer.batches = 5;
  longer.paid = true;
  const auto fails = [](const std::vector<std::string>& lines) {
    std::vector<std::string> all = {header};
    all.insert(all.end(), lines.begin(), lines.end());
    const std::string text = failure(file_of(all));
    const bool known = text.find("already charged with their epoch") < text.size() ||
                       text.find("first batches of epochs in one reservation") < text.size();
    if (!text.empty()) CHECK(known);
    return !text.empty();
  };
  CHECK_FALSE(fails({reserve(1, 0, first), reserve(3, 1, paid)}));
  CHECK(fails({reserve(1, 0, first), reserve(4, 1, paid)}));
  CHECK(fails({reserve(3, 0, paid), reserve(1, 3, first)}));
  CHECK(fails({reserve(1, 0, first), reserve(3, 1, paid, other_run)}));
  CHECK(fails({reserve(1, 0, first), reserve(1, 1, longer)}));
  CHECK(fails({reserve(1, 0, first), settle(0, 0), reserve(1, 1, paid)}));
  CHECK_FALSE(fails({reserve(1, 0, first), reserve(2, 1, paid), reserve(1, 3, first),
                     reserve(3, 4, paid), reserve(1, 7, first)}));
  // Batches that an epoch did not use are forfeited.
  CHECK(fails({reserve(1, 0, first), reserve(2, 1, paid), reserve(1, 3, first), reserve(3, 4, paid),
               reserve(1, 7, paid)}));
  CHECK(fails({reserve(2, 0, first)}));
  // Batches that were reserved and not used may be reserved once more.
  CHECK_FALSE(
      fails({reserve(1, 0, first), reserve(3, 1, paid), settle(1, 2), reserve(2, 2, paid)}));
  // Epochs of any length.
  Event longest = first;
  longest.batches = std::numeric_limits<std::int64_t>::max();
  Event later = longest;
  later.paid = true;
  CHECK_FALSE(fails({reserve(1, 0, longest), reserve(max_reservation, 1, later)}));
}

TEST_CASE("a mutated file is refused, or read as a beginning of the original") {
  std::mt19937 random(5);
  const std::string whole = with({reserve(8, 5), not_private_line({some_run, {}, 0, {}}, "seeded"),
                                  reserve(8, 13, everybody, other_run), settle(2, 15, other_run)});
  int accepted = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string text = whole;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0 && !text.empty(); --edits) {
      const std::size_t at = random() % text.size(), length = random() % 40;
      const auto kind = random() % 5;
      if (kind == 0) text[at] = static_cast<char>(random());
      if (kind == 1) text[at] = whole[random() % whole.size()];
      if (kind == 2) text.erase(at, length);
      if (kind == 3) text.insert(at, whole.substr(random() % whole.size(), length));
      if (kind == 4) text.resize(at);
    }
    try {
      const LedgerText read = parse_ledger(text, "f");
      const std::string end = read.missing_newline ? "\n" : "";
      CHECK(whole.starts_with(text.substr(0, read.size - end.size()) + end));
      ++accepted;
    } catch (const SystemFailure& failure) {
      CHECK(std::string(failure.what()).find("ledger: f:") == 0);
    }
  }
  // Those that were cut.
  CHECK(accepted > 500);
  CHECK(accepted < 3000);
}
