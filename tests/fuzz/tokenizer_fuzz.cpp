// libFuzzer target: any bytes are a tokenizer that encodes and decodes, or are refused with
// std::invalid_argument. The first byte names the kind: a tokenizer.json with a text behind a zero
// byte, or GGUF's metadata as JSON.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/io/strict_json.h"
#include "nn/data/tokenizer/tokenizer_files.h"
#include "nn/data/tokenizer/tokenizer_parts.h"

using namespace sotto;

namespace {

void use(const TokenizerDocument& read, const std::string& text) {
  const Tokenizer tokenizer = make_tokenizer({read.document, "fuzz: "}, read.roles);
  tokenizer.decode(tokenizer.encode(text, {.pair = text}).ids);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr JsonLimits limits{.depth = 32, .max_entries = 1000};
  if (size == 0) return 0;
  const std::string all(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t end = std::min(all.find('\0'), all.size());
  const std::string text = end < all.size() ? all.substr(end + 1) : "";
  try {
    const nlohmann::json object = parse_json_object(all.substr(0, end), "fuzz", limits);
    use(data[0] == 'g' ? gguf_tokenizer(object, "fuzz")
                       : TokenizerDocument{object, roles_in(object)},
        text);
  } catch (const std::invalid_argument&) {
  } catch (const SystemFailure&) {
    // A pattern that takes too many steps.
  }
  return 0;
}
