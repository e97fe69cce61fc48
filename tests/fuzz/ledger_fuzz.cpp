// Any bytes are either a ledger with sane counts or a SystemFailure, read at once or in parts; any
// text is a mark that reads back or an std::invalid_argument. No checksum is met by chance: lines
// of a text that has none get theirs.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>

#include "core/error.h"
#include "dp/ledger/ledger_position.h"
#include "dp/ledger/ledger_text.h"

namespace {

using namespace sotto;

void require(bool fact) {
  if (!fact) std::abort();
}

std::string with_checksums(const std::string& lines) {
  LedgerText text;
  std::string all;
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', at), lines.size());
    if (end > at) all += add_line(text, lines.substr(at, end - at));
    at = end + 1;
  }
  return all;
}

std::optional<LedgerText> parsed(const std::string& text) {
  try {
    return parse_ledger(text, "fuzz");
  } catch (const SystemFailure&) {
    return std::nullopt;  // the expected answer to most inputs
  }
}

void check_counts(const LedgerContents& contents) {
  require(contents.population.value_or(1) >= 1);
  for (const LedgerRun& run : contents.runs) {
    for (const auto& [event, releases] : run.events) {
      require(releases > 0);
      if (event.paid) require(run.payments_left(event) >= 0);
    }
  }
}

void check_parts(const std::string& text, const LedgerText& whole) {
  const std::size_t half = text.find('\n', text.size() / 2);
  if (half == std::string::npos) return;
  LedgerText parts = parse_ledger(text.substr(0, half + 1), "fuzz");
  read_ledger(parts, text.substr(half + 1), "fuzz");
  require(parts.contents.events() == whole.contents.events());
  require(parts.checksum == whole.checksum && parts.size == whole.size);
}

void check_mark(const std::string& text) {
  try {
    const LedgerPosition mark = ledger_position_from_json(text);
    require(ledger_position_from_json(to_json(mark)) == mark);
  } catch (const std::invalid_argument&) {
    // The same.
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const bool complete = input.find("\"chain\"") != std::string::npos;
  const std::string text = complete ? input : with_checksums(input);
  if (const std::optional<LedgerText> read = parsed(text)) {
    require(read->size <= text.size() + (read->missing_newline ? 1 : 0));
    check_counts(read->contents);
    check_parts(text, *read);
  }
  check_mark(input);
  return 0;
}
