// A ledger file whose lines are not one sequence: runs wrote on copies of it, and the copies were
// put together again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dp/ledger/ledger_contents.h"

namespace sotto {

// The lines that follow one another, by their checksums, from a first line on, wherever in the file
// they stand.
struct LedgerBranches {
  struct Line {
    std::int64_t after = -1;   // the number of the line that it follows; 0: a first line; -1: none
    std::int64_t repeats = 0;  // the number of an earlier line of the same text; 0: none
  };
  std::vector<Line> lines;   // of the file, whose numbers begin with 1
  std::int64_t counted = 0;  // lines that `contents` holds, each text once
  std::int64_t copies = 0;   // lines that count and that no line follows
  // The recorded releases. If several lines follow one line, each branch after it counts as an
  // unplanned run of its own, because no branch saw another; a reservation that was open there
  // counts in full.
  LedgerContents contents;
  std::string unknown;  // why `contents` have no epsilon; empty if they have one
};

// Reads the lines of a ledger file and the branches that they form. Any content is accepted.
LedgerBranches read_branches(const std::string& file);

}  // namespace sotto
