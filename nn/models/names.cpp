#include "nn/models/names.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "core/error.h"

namespace sotto::nn {

namespace {

bool digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// The pattern with its stars replaced by `parts`, in their order.
std::string filled(std::string_view pattern, const std::vector<std::string>& parts) {
  std::string text;
  std::size_t next = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '*') {
      text += pattern[i];
      continue;
    }
    if (i + 1 < pattern.size() && pattern[i + 1] == '*') ++i;
    text += next < parts.size() ? parts[next] : "";
    ++next;
  }
  return text;
}

// The line with the stars of its patterns filled in.
NamesLine filled(NamesLine line, const std::vector<std::string>& parts) {
  line.file = filled(line.file, parts);
  for (std::string& parameter : line.parameters) parameter = filled(parameter, parts);
  line.tied = filled(line.tied, parts);
  constexpr std::size_t digits = 9;  // more are no block's number
  if (!parts.empty() && !parts[0].empty() && parts[0].size() <= digits &&
      std::all_of(parts[0].begin(), parts[0].end(), digit))
    line.block = std::stoll(parts[0]);
  return line;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  return parts;
}

// The choice-th text of every {a,b}; `choices` receives how many there are.
std::string chosen(const std::string& text, std::size_t choice, std::size_t& choices) {
  const std::size_t open = text.find('{'), close = text.find('}');
  if (open == std::string::npos || close == std::string::npos || close < open) return text;
  const std::vector<std::string> all = split(text.substr(open + 1, close - open - 1), ',');
  choices = all.size();
  check(choice < all.size(), "names: {} has {} endings", text, all.size());
  return chosen(text.substr(0, open) + all[choice] + text.substr(close + 1), choice, choices);
}

void read_mark(NamesLine& line, const std::string& mark, std::istringstream& words) {
  if (mark == "transposed") {
    line.transposed = true;
  } else if (mark == "outside") {
    line.outside = true;
  } else if (mark == "new") {
    line.fresh = true;
  } else if (mark == "head") {
    line.head = line.outside = line.fresh = true;
  } else if (mark == "tied") {
    words >> line.tied;
  } else if (mark == "paired") {
    words >> line.paired;
  } else if (mark == "other-task") {
    line.other_task = true;
  } else {
    check(mark == "ignored", "names: {}: unknown mark {}", line.file, mark);
  }
}

NamesLine parsed(const std::string& text, const std::string& comment) {
  NamesLine line;
  std::istringstream words(text);
  std::string parameters;
  words >> line.file >> parameters;
  check(!parameters.empty(), "names: {}: no parameter is named", line.file);
  if (parameters == "=") parameters = line.file;
  if (parameters != "-") line.parameters = split(parameters, '+');
  for (std::string mark; words >> mark;) read_mark(line, mark, words);
  line.comment = comment;
  return line;
}

std::string trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
}

}  // namespace

bool fits_pattern(std::string_view pattern, std::string_view text,
                  std::vector<std::string>* parts) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == text;
  if (pattern.substr(0, star) != text.substr(0, star)) return false;
  const bool any = pattern.substr(star).starts_with("**");
  const std::string_view rest = pattern.substr(star + (any ? 2 : 1));
  text.remove_prefix(star);
  std::size_t longest = 0;
  while (longest < text.size() && (any || digit(text[longest]))) ++longest;
  for (std::size_t length = longest; any || length > 0; --length) {
    std::vector<std::string> more;
    if (fits_pattern(rest, text.substr(length), &more)) {
      if (parts) {
        parts->emplace_back(text.substr(0, length));
        parts->insert(parts->end(), more.begin(), more.end());
      }
      return true;
    }
    if (length == 0) return false;
  }
  return false;
}

NamesTable::NamesTable(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    read_line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  check(!known_.empty(), "names: no tensor is named by which files are known");
}

void NamesTable::read_line(std::string_view text) {
  const std::size_t hash = std::min(text.find('#'), text.size());
  const std::string before = trimmed(text.substr(0, hash));
  const std::string comment = trimmed(text.substr(std::min(hash + 1, text.size())));
  if (before.empty()) return;
  std::istringstream words(before);
  std::string first, second, third;
  words >> first >> second >> third;
  if (first == "known") {
    known_ = second;
  } else if (first == "prefix") {
    prefix_ = second;
  } else if (first == "old") {
    old_endings_.emplace_back(second, third);
  } else {
    std::size_t choices = 1;
    for (std::size_t i = 0; i < choices; ++i)
      lines_.push_back(parsed(chosen(before, i, choices), comment));
  }
}

std::optional<std::string> NamesTable::prefix_in(
    const std::function<bool(const std::string& name)>& has) const {
  for (const std::string& prefix : {prefix_, std::string()}) {
    if (has(prefix + known_)) return prefix;
  }
  return std::nullopt;
}

std::optional<NamesLine> NamesTable::of_file(const std::string& name,
                                             const std::string& prefix) const {
  std::string own = name;
  for (const auto& [old, now] : old_endings_) {
    if (own.ends_with(old)) own = own.substr(0, own.size() - old.size()) + now;
  }
  const std::optional<std::string> inside =
      own.starts_with(prefix) ? std::optional(own.substr(prefix.size())) : std::nullopt;
  for (const NamesLine& line : lines_) {
    std::vector<std::string> parts;
    if (!line.outside && !inside) continue;
    if (fits_pattern(line.file, line.outside ? own : *inside, &parts)) return filled(line, parts);
  }
  return std::nullopt;
}

std::optional<NamesLine> NamesTable::of_parameter(const std::string& name) const {
  for (const NamesLine& line : lines_) {
    for (const std::string& pattern : line.parameters) {
      std::vector<std::string> parts;
      if (fits_pattern(pattern, name, &parts)) return filled(line, parts);
    }
  }
  return std::nullopt;
}

}  // namespace sotto::nn
