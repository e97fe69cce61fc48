#include "samples/report/picture_grid.h"

#include <cstdint>

#include <fmt/format.h>

#include "samples/report/charts.h"

namespace sotto {

std::string base64(std::string_view bytes) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t k = 0; k < bytes.size(); k += 3) {
    const std::string_view group = bytes.substr(k, 3);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i)
      bits = bits << 8 | (i < group.size() ? static_cast<unsigned char>(group[i]) : 0);
    for (std::size_t i = 0; i < 4; ++i)
      text += i <= group.size() ? digits[bits >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

std::string picture_grid(const std::vector<TrainingReport::WrongPicture>& pictures) {
  std::string html = "<div class=\"pictures\">\n";
  for (const TrainingReport::WrongPicture& picture : pictures) {
    const std::string words =
        fmt::format("{}, predicted {} ({})", escape(picture.label), escape(picture.predicted),
                    short_percent(picture.probability));
    html += fmt::format(
        "<figure><img src=\"data:image/png;base64,{}\" alt=\"{}\"/><figcaption>{}</figcaption>"
        "</figure>\n",
        base64(picture.png), words, words);
  }
  return html + "</div>\n";
}

}  // namespace sotto
