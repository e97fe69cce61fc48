// What a ledger says, and the reader of its file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sotto/dp/event.h"

namespace sotto {

inline constexpr int ledger_version = 1;
inline constexpr std::int64_t largest_reservation = 1 << 20;
inline constexpr std::uint64_t end_of_draws = std::uint64_t{1} << 62;

// What the numbers are about, in words for people.
struct LedgerHeader {
  std::string unit = "one training example";
  std::string relation = "add or remove one";

  bool operator==(const LedgerHeader&) const = default;
};

struct LedgerContents {
  LedgerHeader header;
  std::vector<std::pair<Event, std::int64_t>> events;  // in order, equal neighbours together
  std::vector<std::string> reasons;                    // why the noise is not private; or none
  std::uint64_t next_draw = 0;                         // no draw from here on was used

  void count(const Event& event, std::int64_t releases);
};

// A file's contents, and how much of it they fill: an append that a crash cut short is left out.
struct LedgerText {
  LedgerContents contents;
  std::size_t size = 0;          // bytes, up to the end of the last whole line
  bool missing_newline = false;  // the last line is whole but for its end
};

// Reads the text of a ledger file, counting an open reservation whole. Throws SystemFailure with
// "path:line" when a line is malformed, unless it is the last and broke off in the middle.
LedgerText parse_ledger(const std::string& text, const std::string& path);

}  // namespace sotto
