// Any text is a value of an option, within its range, or an std::invalid_argument. The first letter
// says which option.
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "core/devices.h"
#include "dp/event.h"
#include "memory/planning/policy.h"
#include "samples/privacy_budget/training_phases.h"

namespace {

using namespace sotto;

void require(bool fact) {
  if (!fact) std::abort();
}

void parse(char option, const std::string& text) {
  if (option == 'b') {
    constexpr std::size_t max = std::size_t{1} << 62;
    const std::size_t bytes = memory::parse_bytes(text);
    require(bytes >= 1 && bytes <= max);
  } else if (option == 'c') {
    const auto checkpoint = memory::parse_checkpoint(text);
    require(memory::parse_checkpoint(memory::checkpoint_text(checkpoint)) == checkpoint);
  } else if (option == 'd') {
    const Device device = parse_device(text);
    require(parse_device(name(device)) == device);
  } else if (option == 'e') {
    const Event event = event_from_json(text);
    require(event_from_json(to_json(event)) == event);
  } else if (option == 'p') {
    const auto precision = memory::parse_precision(text);
    require(memory::parse_precision(memory::precision_text(precision)) == precision);
  } else {
    const budget::Phase phase = budget::make_phase(budget::parse_phase(text, {}));
    require(phase.steps >= 1);
    require(event_from_json(to_json(phase.event)) == phase.event);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  try {
    parse(static_cast<char>(data[0]), {reinterpret_cast<const char*>(data) + 1, size - 1});
  } catch (const std::invalid_argument&) {
    // The expected answer to most inputs.
  }
  return 0;
}
