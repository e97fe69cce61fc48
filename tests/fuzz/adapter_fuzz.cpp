// Any text is a tuning and any JSON an adapter's config, whose patterns fit some paths, or each is
// refused with std::invalid_argument.
#include <cstdint>
#include <stdexcept>
#include <string>

#include "core/error.h"
#include "nn/models/adapter_config.h"
#include "nn/models/tuning.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sotto::nn;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    static_cast<void>(parse_tuning(text));
  } catch (const std::invalid_argument&) {
  }
  try {
    const AdapterConfig config = parse_adapter_config(text, "config");
    static_cast<void>(parse_adapter_config(to_json(config), "written"));
    static_cast<void>(config.of("transformer.h.0.attn.c_attn"));
  } catch (const std::invalid_argument&) {
  } catch (const sotto::SystemFailure&) {
    // A pattern that takes too many steps.
  }
  return 0;
}
