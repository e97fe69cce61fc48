// Any bytes are either a ledger with sane counts or a SystemFailure.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "sotto/core/error.h"
#include "sotto/dp/ledger_contents.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const sotto::LedgerText read = sotto::parse_ledger(text, "fuzz");
    if (read.size > text.size()) std::abort();
    for (const auto& [event, count] : read.contents.events) {
      if (count <= 0) std::abort();
    }
  } catch (const sotto::SystemFailure&) {
    // The expected answer to most inputs.
  }
  return 0;
}
