#include "nn/data/tables/csv_preamble.h"

#include <algorithm>
#include <vector>

#include "nn/data/tables/field_text.h"

namespace sotto {

namespace {

constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

struct Line {
  std::string_view text;
  std::size_t next = 0;   // the offset behind its end
  std::int64_t ends = 0;  // 0 for the last line of the text
};

Line line_at(std::string_view text, std::size_t at) {
  const std::size_t end = std::min(text.find_first_of("\r\n", at), text.size());
  const std::size_t length = text.substr(end).starts_with("\r\n") ? 2 : end < text.size() ? 1 : 0;
  return {text.substr(at, end - at), end + length, length > 0 ? 1 : 0};
}

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  return text.substr(0, text.find_last_not_of(" \t") + 1);
}

bool is_blank(std::string_view line) { return trimmed(line).empty(); }

// The fields of a line, roughly: with their quotes.
std::vector<std::string_view> fields_of(std::string_view line, char delimiter) {
  std::vector<std::string_view> fields;
  bool quotes = false;
  std::size_t begin = 0;
  for (std::size_t k = 0; k < line.size(); ++k) {
    quotes = quotes != (line[k] == '"');
    if (quotes || line[k] != delimiter) continue;
    fields.push_back(trimmed(line.substr(begin, k - begin)));
    begin = k + 1;
  }
  fields.push_back(trimmed(line.substr(begin)));
  return fields;
}

// A line that begins with '#', before the first line that does not.
bool is_comment(std::string_view line, std::string_view first, char delimiter) {
  const auto fields = fields_of(line, delimiter), of_first = fields_of(first, delimiter);
  if (fields.size() < 2 || fields.size() != of_first.size()) return true;
  const bool attached = std::string_view("# \t!").find(fields[0].substr(1, 1)) == line.npos;
  const bool numbers = std::any_of(of_first.begin(), of_first.end(),
                                   [](std::string_view text) { return parse_number(text); });
  return !attached && !numbers;
}

// The delimiter that a line `sep=;` sets, with or without quotes; 0 for any other line.
char stated_delimiter(std::string_view line) {
  if (line.size() == 7 && line.starts_with('"') && line.ends_with('"')) line = line.substr(1, 5);
  constexpr std::string_view key = "sep=";
  const bool stated = line.size() == key.size() + 1 && line.back() != '"' && line.back() > 0 &&
                      std::equal(key.begin(), key.end(), line.begin(),
                                 [](char a, char b) { return a == b || a == b + ('a' - 'A'); });
  return stated ? line.back() : '\0';
}

}  // namespace

CsvPreamble csv_preamble(std::string_view beginning, char delimiter) {
  CsvPreamble y{.bytes = beginning.starts_with(byte_order_mark) ? byte_order_mark.size() : 0,
                .delimiter = delimiter};
  const auto pass = [&](const Line& line) {
    y.bytes = line.next;
    y.lines += line.ends;
  };
  const Line stated = line_at(beginning, y.bytes);
  if (const char said = stated_delimiter(stated.text); said != '\0') {
    y.delimiter = said;
    pass(stated);
  }
  // The comments are up to the first line that is neither one nor blank.
  std::vector<Line> before;
  Line line = line_at(beginning, y.bytes);
  while (line.next < beginning.size() && (line.text.starts_with('#') || is_blank(line.text))) {
    before.push_back(line);
    line = line_at(beginning, line.next);
  }
  if (line.text.starts_with('#')) return y;  // there is no other line
  while (!before.empty() && is_blank(before.back().text)) before.pop_back();
  if (!before.empty() && !is_comment(before.back().text, line.text, y.delimiter)) before.pop_back();
  for (const Line& each : before) {
    y.comments = y.comments || !is_blank(each.text);
    pass(each);
  }
  return y;
}

void CommentFilter::filter(std::string& piece) {
  std::size_t kept = 0;
  for (const char c : piece) {
    const bool end = c == '\n' || c == '\r', begins = at_line_ && !quotes_ && c == '#';
    if (end) comment_ = false;
    if (!comment_) {
      quotes_ = quotes_ != (c == '"');
      piece[kept++] = c;
    }
    comment_ = comment_ || begins;
    at_line_ = end;
  }
  piece.resize(kept);
}

std::size_t end_mark(std::string_view text) {
  const std::size_t last = text.find_last_not_of("\x1a\r\n");
  return std::min(text.find('\x1a', last == text.npos ? 0 : last + 1), text.size());
}

}  // namespace sotto
