#include <fmt/format.h>
#include <fmt/ranges.h>

#include "nn/models/pretrained.h"

namespace sotto::nn {

std::string LoadReport::to_text() const {
  std::string text = fmt::format("{}: {} tensors loaded\n", architecture, loaded.size());
  const auto add = [&](const char* title, const std::vector<std::string>& names) {
    if (!names.empty()) text += fmt::format("{}: {}\n", title, fmt::join(names, ", "));
  };
  add("passed over", skipped);
  add("tied", tied);
  add("drawn anew", drawn_anew);
  add("kept quantised", quantized);
  return text;
}

}  // namespace sotto::nn
