// The text of a ledger file: lines of JSON, each with a checksum over all before it.
// docs/accounting.md, section 4, describes the format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "dp/ledger/ledger_contents.h"

namespace sotto {

// The version of ledgers that are written, and the oldest that is read: version 2 has no lines of
// populations, version 3 none of plans.
inline constexpr int ledger_version = 4, oldest_ledger_version = 2;

// What was read or written of a file.
struct LedgerText {
  LedgerContents contents;
  std::int64_t lines = 0;
  std::size_t size = 0;          // bytes of those lines; what a crash left of another is left out
  std::string checksum;          // of the last line
  bool missing_newline = false;  // the last line is whole but for its end, which `size` counts
};

// Reads `more`, which follows what was read, counting open reservations whole. Throws SystemFailure
// with "path:line" when a line is malformed, was edited or is not in its place, unless it is the
// last and broke off in the middle.
void read_ledger(LedgerText& text, const std::string& more, const std::string& path);
// Reads a whole file, which has a header at least.
LedgerText parse_ledger(const std::string& text, const std::string& path);

// Lines without their checksums. What is not UTF-8 in words for people is replaced.
std::string header_line(const LedgerContents& contents);
std::string reservation_line(const LedgerRun& run, const Reservation& reservation);
std::string settlement_line(const LedgerRun& run, std::int64_t used, std::uint64_t next_draw);
std::string population_line(const LedgerRun& run, std::int64_t units);
std::string plan_line(const LedgerRun& run, const EventCounts& most);
std::string not_private_line(const LedgerRun& run, const std::string& reason);
// The next line of the file, newline included: `line` with its checksum. The contents do not
// change.
std::string add_line(LedgerText& text, const std::string& line);

// How a line with this checksum ends, without its newline.
std::string line_end(const std::string& checksum);

// The relation as the header has it.
const char* relation_text(NeighboringRelation relation);

}  // namespace sotto
