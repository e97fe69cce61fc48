// How a checkpoint refers to a ledger: enough to tell another ledger, an old copy and an edited one
// from the one that was there when the checkpoint was written.
#pragma once

#include <cstdint>
#include <string>

namespace sotto {

struct LedgerPosition {
  std::string ledger;         // id of the ledger
  std::string run;            // id of the run that the checkpoint belongs to
  std::int64_t releases = 0;  // of that run
  std::int64_t lines = 0;     // of the file, and its bytes
  std::uint64_t bytes = 0;
  std::string checksum;  // of the last of those lines

  bool operator==(const LedgerPosition&) const = default;
};

// {"ledger":"..","run":"..","releases":5,"lines":9,"bytes":2100,"chain":".."}
std::string to_json(const LedgerPosition& mark);
// The mark in a text that to_json wrote. Throws std::invalid_argument when a field is missing,
// unknown, of the wrong type or out of range.
LedgerPosition ledger_mark_from_json(const std::string& text);

}  // namespace sotto
