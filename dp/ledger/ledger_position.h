// The position in a ledger that a training checkpoint stores: enough to distinguish the
// checkpoint's ledger from another one, an old copy or an edited one.
#pragma once

#include <cstdint>
#include <string>

namespace sotto {

// The position of a ledger when a checkpoint was written; it detects an older or another file.
struct LedgerPosition {
  std::string ledger;         // id of the ledger
  std::string run;            // id of the run that the checkpoint belongs to
  std::int64_t releases = 0;  // of that run
  std::int64_t lines = 0;     // of the file
  std::uint64_t bytes = 0;    // of these lines
  std::string checksum;       // of the last of these lines

  bool operator==(const LedgerPosition&) const = default;
};

// Formats {"ledger":"..","run":"..","releases":5,"lines":9,"bytes":2100,"chain":".."}.
std::string to_json(const LedgerPosition& mark);
// Parses the text of to_json. Throws std::invalid_argument when a field is missing, unknown, of the
// wrong type or out of range.
LedgerPosition ledger_position_from_json(const std::string& text);

}  // namespace sotto
