#include "samples/cli/renamed_options.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace sotto::samples {

namespace {

struct RenamedOption {
  std::string_view before, now;
};
constexpr std::array options = std::to_array<RenamedOption>({
    {"accumulation", "accumulation-steps"},
    {"adaptive-quantile", "adaptive-clip-quantile"},
    {"batch", "batch-size"},
    {"batches", "batches-per-epoch"},
    {"capture", "cuda-graph"},
    {"checkpoint", "checkpoint-activations"},
    {"claim", "claimed-epsilon"},
    {"clip", "clip-bound"},
    {"cut", "truncation-probability"},
    {"html", "report"},
    {"largest-batch", "max-batch-size"},
    {"limit", "hard-limit"},
    {"on", "canary-parameter"},
    {"passes", "clipping"},
    {"population", "dataset-size"},
    {"write-ahead", "ledger-block"},
});

struct RenamedValue {
  std::string_view option, before, now;
};
constexpr std::array values = std::to_array<RenamedValue>({
    {"clip-rule", "adaptive", "psac"},
    {"clip-rule", "automatic", "auto-s"},
    {"clip-rule", "normalise", "normalize"},
    {"clipping", "one", "book-keeping"},
    {"clipping", "two", "ghost"},
});

}  // namespace

std::string current_option(const std::string& name) {
  const auto* const found = std::find_if(options.begin(), options.end(),
                                         [&](const RenamedOption& o) { return o.before == name; });
  return found == options.end() ? name : std::string(found->now);
}

std::string current_value(const std::string& option, const std::string& value) {
  const auto* const found = std::find_if(values.begin(), values.end(), [&](const RenamedValue& v) {
    return v.option == option && v.before == value;
  });
  return found == values.end() ? value : std::string(found->now);
}

}  // namespace sotto::samples
