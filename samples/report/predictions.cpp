#include "samples/report/predictions.h"

#include <algorithm>

#include "autograd/ops/reductions.h"
#include "autograd/tape.h"
#include "core/error.h"

namespace sotto::samples {

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

std::string prediction_header(const std::string& columns, const std::vector<std::string>& classes) {
  std::string line = columns;
  for (const std::string& name : classes) line += "," + csv_field("p(" + name + ")");
  return line + "\n";
}

std::string prediction_lines(const Tensor& logits, const std::vector<std::string>& classes,
                             const std::function<std::string(std::size_t row)>& begin) {
  Tape tape({.training = false});
  const std::vector<float> all = softmax(tape.input(logits), 1).value().to_vector<float>();
  std::string text;
  for (std::size_t row = 0; row * classes.size() < all.size(); ++row) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(row * classes.size());
    const auto end = first + std::ssize(classes);
    const auto best = static_cast<std::size_t>(std::max_element(first, end) - first);
    text += begin(row) + csv_field(classes[best]);
    for (auto p = first; p != end; ++p) text += fmt::format(",{:.6f}", *p);
    text += '\n';
  }
  return text;
}

}  // namespace sotto::samples
