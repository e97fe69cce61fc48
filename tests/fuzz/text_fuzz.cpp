// Any bytes are text, whose rows say it again, or are refused with SystemFailure. The first byte
// chooses the options.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "nn/data/text/text_files.h"

namespace {

using namespace sotto;

void require(bool fact) {
  if (!fact) std::abort();
}

std::optional<Dataset> parsed(const std::string& text, const TextOptions& options) {
  try {
    return text_dataset(text, "fuzz", options);
  } catch (const SystemFailure&) {
    return std::nullopt;  // the expected answer to most inputs
  }
}

// All rows' texts, one after the other.
std::string joined(const Dataset& data, const TextVocabulary& vocabulary) {
  std::string y;
  for (std::int64_t k = 0; k < data.size(); ++k) {
    const std::string row = vocabulary.decode(data.inputs[k].to_vector<std::int64_t>());
    require(static_cast<double>(vocabulary.encode(row).size()) == data.field("lengths").at({k}));
    y += row;
  }
  return y;
}

// The text without what ends lines and what separates.
std::string bare(std::string text) {
  std::erase_if(
      text, [](char c) { return std::string_view("\n\r|\t ").find(c) != std::string_view::npos; });
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  TextOptions options{.unit = static_cast<TextUnit>(data[0] % 4),
                      .separator = "|",
                      .context = 1 + data[0] / 16,
                      .long_units = LongUnit::split};
  const std::optional<Dataset> bytes = parsed(text, options);
  if (bytes) {
    const std::string after_mark = text.substr(text.starts_with("\xef\xbb\xbf") ? 3 : 0);
    require(bare(joined(*bytes, options.vocabulary)) == bare(after_mark));
  }
  options.vocabulary = TextVocabulary::characters("ab\n\r\t |é€", true);
  const std::optional<Dataset> characters = parsed(text, options);
  require(bytes.has_value() == characters.has_value());
  if (bytes) require(bytes->unit_count() == characters->unit_count());
  options.vocabulary = TextVocabulary::characters("ab\n\r\t |é€");
  parsed(text, options);
  return 0;
}
