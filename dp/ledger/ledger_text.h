// The text of a ledger file: JSON lines, each with a checksum over all lines before it.
// docs/appendix/ledger-format.md describes the format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "dp/ledger/ledger_contents.h"

namespace sotto {

// The format version that is written, and the oldest that is read: version 2 has no population
// lines, version 3 has no plan lines.
inline constexpr int ledger_version = 4, oldest_ledger_version = 2;

// The part of a file that was read or written.
struct LedgerText {
  LedgerContents contents;  // as the lines say
  std::int64_t lines = 0;   // number of lines
  std::size_t size = 0;     // bytes of these lines, without an incomplete one that a crash left
  std::string checksum;     // of the last line
  std::string run;          // of the last line that was read; none of the header
  bool missing_newline = false;  // the last line lacks only its newline, which `size` counts
};

// Reads `more`, the text after the lines read so far, up to the first line that is malformed,
// edited or out of order. The last line may be incomplete. Open reservations count in full. Returns
// the fault of the wrong line, or an empty text; `text` then has the lines before it.
std::string read_right_lines(LedgerText& text, const std::string& more);
// Reads likewise, but throws SystemFailure with "path:line" for a wrong line.
void read_ledger(LedgerText& text, const std::string& more, const std::string& path);
// Reads a whole file, which must have a header.
LedgerText parse_ledger(const std::string& text, const std::string& path);

// Format lines without their checksums. In texts for people, invalid UTF-8 is replaced.
std::string header_line(const LedgerContents& contents);
// The line that charges releases before they are made.
std::string reservation_line(const LedgerRun& run, const Reservation& reservation);
// Says how many of the open reservation were used.
std::string settlement_line(const LedgerRun& run, std::int64_t used, std::uint64_t next_draw);
// The line that declares the number of units in the data set.
std::string population_line(const LedgerRun& run, std::int64_t units);
// Declares the most that the run will release.
std::string plan_line(const LedgerRun& run, const EventCounts& max);
// Charges the best of a random number of runs.
std::string selection_line(const LedgerRun& run, const PrivateSelection& selection);
// Says why the noise is not private.
std::string not_private_line(const LedgerRun& run, const std::string& reason);
// Returns the next line of the file, newline included: `line` with its checksum. `text.contents`
// does not change.
std::string add_line(LedgerText& text, const std::string& line);

// The end of a line with this checksum, without its newline.
std::string line_end(const std::string& checksum);
// The checksum that a line without its newline ends with, right or wrong; empty if with none.
std::string stated_checksum(const std::string& line);
// Returns whether that is the line's checksum behind a line with the checksum `before`, or as the
// first line if that is empty.
bool follows(const std::string& before, const std::string& line);

// The relation as written in the header.
const char* relation_text(NeighboringRelation relation);

}  // namespace sotto
