#include "nn/models/path_pattern.h"

namespace sotto::nn {

bool PathPattern::fits_ending(const std::string& path) const {
  if (fits(path)) return true;
  for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1)) {
    if (fits(path.substr(dot + 1))) return true;
  }
  return false;
}

std::string quoted(const std::string& text) {
  std::string y;
  for (const char c : text) {
    if (std::string("\\^$.|?*+()[]{}").find(c) != std::string::npos) y += '\\';
    y += c;
  }
  return y;
}

}  // namespace sotto::nn
