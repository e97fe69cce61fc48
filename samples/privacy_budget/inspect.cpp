// The subcommand `inspect`: finds the right and wrong lines of a ledger, even of one that the
// library refuses to open.
#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"
#include "core/io/atomic_file.h"
#include "core/io/utf8.h"
#include "dp/ledger/ledger_branches.h"
#include "dp/ledger/ledger_text.h"
#include "dp/numerics/directed_rounding.h"
#include "samples/privacy_budget/commands.h"
#include "samples/report/charts.h"

namespace sotto::budget {

namespace {

// The findings for a file. `known` holds the lines before the first wrong one; if the file is right
// without some stray lines, it also holds the lines behind those, and otherwise those of copies.
struct LedgerFindings {
  LedgerText known{};
  LedgerBranches branches{};     // if lines are wrong that are not strays
  std::int64_t right = 0;        // lines before the wrong one
  std::string why{};             // the line is wrong; empty: no line is
  std::string wrong{};           // the text of the wrong line
  std::int64_t strays = 0;       // lines from it on without which the file is right; 0: none
  std::int64_t behind = 0;       // lines behind the wrong line, or behind the strays
  std::size_t broken_bytes = 0;  // of an incomplete last line

  // Of the first wrong line, if a run wrote it.
  LedgerBranches::Line place() const {
    const auto wrong_line = static_cast<std::size_t>(right);
    return wrong_line < branches.lines.size() ? branches.lines[wrong_line] : LedgerBranches::Line{};
  }
};

// Reads a file. A file that cannot be read is a wrong argument; a damaged one is a proper answer.
std::string file_text(const std::string& path) {
  try {
    return read_file(path);
  } catch (const SystemFailure& error) {
    fail(error.what());
  }
}

std::string line_at(const std::string& file, std::size_t at) {
  const std::size_t end = file.find('\n', at);
  return file.substr(at, end == std::string::npos ? end : end + 1 - at);
}

// Returns whether a line could hold a release, even one of which a part is lost or that another
// line runs into: it has the name of a field.
bool may_record(std::string_view line) { return line.find("\":") != line.npos; }

// Skips lines, from the wrong one on, until one continues the right lines. The checksum of a line
// depends on all lines before it, so if the rest of the file is right, no recorded line is missing;
// but a line that may record something can be that of a run on a copy, and is no stray one.
void skip_strays(const std::string& file, LedgerFindings& found) {
  std::size_t at = found.known.size + found.wrong.size();
  if (may_record(found.wrong)) return;
  for (std::int64_t strays = 1; at < file.size(); ++strays) {
    LedgerText text = found.known;
    const std::string next = line_at(file, at);
    at += next.size();
    if (!read_right_lines(text, next).empty() || text.lines == found.right) {
      if (may_record(next)) return;
      continue;
    }
    if (!read_right_lines(text, file.substr(at)).empty()) return;
    found.behind = text.lines - found.right;
    found.strays = strays;
    found.known = std::move(text);
    return;
  }
}

LedgerFindings findings_of(const std::string& file) {
  LedgerFindings found;
  found.why = read_right_lines(found.known, file);
  found.right = found.known.lines;
  if (found.why.empty()) {
    found.broken_bytes = file.size() - std::min(file.size(), found.known.size);
    return found;
  }
  found.wrong = line_at(file, found.known.size);
  const std::string_view behind =
      std::string_view(file).substr(found.known.size + found.wrong.size());
  found.behind =
      std::ranges::count(behind, '\n') + (behind.empty() || behind.ends_with('\n') ? 0 : 1);
  skip_strays(file, found);
  if (found.strays > 0) return found;
  found.branches = read_branches(file);
  found.known.contents = found.branches.contents;
  found.known.lines = found.branches.counted;
  if (const auto [after, repeats] = found.place(); repeats > 0) {
    found.why = fmt::format("it repeats line {}", repeats);
  } else if (after > 0 && after != found.right) {
    found.why = fmt::format("it follows line {}: a run wrote it on a copy of this ledger", after);
  }
  return found;
}

std::string wrong_text(const LedgerFindings& found) {
  constexpr std::size_t max = 160;
  std::string_view line = found.wrong;
  if (line.ends_with('\n')) line.remove_suffix(1);
  return excerpt(line, max);
}

void tell_lines(const LedgerFindings& found, Answer& answer) {
  answer.json["whole"] = found.why.empty();
  answer.json["right_lines"] = found.right;
  if (found.why.empty()) {
    answer.facts.emplace_back("lines", fmt::format("{}, all of them right", grouped(found.right)));
    return;
  }
  const std::int64_t number = found.right + 1;
  answer.facts.emplace_back("right lines", grouped(found.right));
  answer.facts.emplace_back("wrong line", fmt::format("{}: {}", number, found.why));
  answer.facts.emplace_back("its text", wrong_text(found));
  answer.facts.emplace_back("behind it", fmt::format("{} lines{}", grouped(found.behind),
                                                     found.strays > 0 ? ", right" : ""));
  if (found.strays == 0) {
    const std::int64_t copies = found.branches.copies;
    answer.facts.emplace_back("counted",
                              fmt::format("{} lines{}", grouped(found.known.lines),
                                          copies > 1 ? fmt::format(" of {} copies", copies) : ""));
  }
  answer.json["wrong_line"] = {
      {"line", number}, {"reason", printable(found.why)}, {"text", wrong_text(found)}};
  answer.json["stray_lines"] = found.strays;
  answer.json["lines_behind"] = found.behind;
  answer.json["lines_counted"] = found.known.lines;
  answer.json["copies"] = std::max<std::int64_t>(found.branches.copies, 1);
}

void tell_cost(const Options& options, const LedgerFacts& ledger, const std::string& unknown,
               Answer& answer) {
  const NeighboringRelation relation = options.relation.value_or(ledger.relation);
  std::int64_t releases = 0;
  for (const auto& [event, count] : ledger.history) releases += count;
  answer.facts.insert(answer.facts.end(), {{"unit", ledger.unit},
                                           {"neighbours", description(relation)},
                                           {"releases", grouped(releases)}});
  answer.json["unit"] = ledger.unit;
  answer.json["relation"] = name(relation);
  answer.json["releases"] = releases;
  answer.alarms = ledger.reasons;
  if (!unknown.empty()) {
    answer.notes.push_back(fmt::format("epsilon is not known: {}", unknown));
    return;
  }
  Table table{.head = {"delta", "epsilon at least"}};
  try {
    for (const double delta : options.deltas) {
      const double min = epsilon(ledger, relation, delta);
      table.rows.push_back({shown(delta), rounded_up(min)});
      answer.json["answers"].push_back({{"delta", delta}, {"epsilon_at_least", json_number(min)}});
    }
    answer.tables.push_back(std::move(table));
  } catch (const std::invalid_argument& error) {
    answer.notes.push_back(fmt::format("epsilon is not known: {}", error.what()));
  }
}

// Returns the numbers of the stray lines as an address for sed.
std::string stray_range(const LedgerFindings& found) {
  const std::int64_t first = found.right + 1, last = found.right + found.strays;
  return first == last ? fmt::format("{}", first) : fmt::format("{},{}", first, last);
}

std::vector<std::string> advice_on_copies(const LedgerBranches& branches) {
  std::vector<std::string> notes;
  if (branches.copies > 1) {
    notes.push_back(fmt::format(
        "runs wrote on {} copies of this ledger, whose lines are together here. They record true "
        "releases: all count, and none may be deleted. Copies cannot be joined: keep this file, "
        "and "
        "for further releases from these data begin a new ledger, whose epsilon adds to this one",
        branches.copies));
  }
  const auto unplaced = [](const auto& line) { return line.after < 0; };
  const auto repeated = [](const auto& line) { return line.repeats > 0; };
  const auto lost = std::ranges::count_if(branches.lines, unplaced),
             doubled = std::ranges::count_if(branches.lines, repeated);
  if (doubled > 0)
    notes.push_back(fmt::format(
        "lines that repeat others, {} of them, count once: the file may hold them twice, or a run "
        "went on from one state on two copies, and released more",
        doubled));
  if (lost > 0)
    notes.push_back(
        fmt::format("lines that follow no line of this file, {} of them, do not count: their "
                    "releases and those "
                    "of lost lines are unknown, and epsilon may be larger by any amount",
                    lost));
  if (branches.copies > 1 && lost == 0 && doubled == 0) return notes;
  notes.emplace_back("Release nothing more from these data before their releases are known");
  if (branches.copies > 1) return notes;
  notes.emplace_back(
      "look for a copy: a backup, or FILE.rescue, which a run saves if it finds its ledger "
      "damaged. "
      "It can replace this file if it is undamaged, begins with this file's right lines, and is "
      "not "
      "older than the last release");
  return notes;
}

std::vector<std::string> advice(const LedgerFindings& found) {
  std::vector<std::string> notes;
  if (found.broken_bytes > 0) {
    notes.push_back(fmt::format(
        "the last line broke off after {} bytes, as after a crash: it records no release, and the "
        "next run removes it",
        found.broken_bytes));
  }
  if (found.why.empty()) {
    notes.emplace_back(
        "the file cannot show whether whole lines were cut from its end; a training checkpoint "
        "can");
  } else if (found.strays > 0) {
    notes.push_back(fmt::format(
        "no record is missing: without line {}, which the ledger did not write, all checksums are "
        "right. When no run uses the ledger: sed -i.damaged {}d FILE",
        stray_range(found), stray_range(found)));
  } else {
    for (std::string& note : advice_on_copies(found.branches)) notes.push_back(std::move(note));
  }
  return notes;
}

}  // namespace

Answer answer_inspect(const Options& options) {
  const LedgerFindings found = findings_of(file_text(options.ledger));
  Answer answer{.title = "Lines of a ledger"};
  if (!found.why.empty())
    answer.failure = fmt::format("{}:{}: {}", options.ledger, found.right + 1, found.why);
  answer.json["command"] = "inspect";
  answer.json["ledger"] = options.ledger;
  answer.facts.emplace_back("ledger", options.ledger);
  tell_lines(found, answer);
  if (found.known.lines > 0) {
    tell_cost(options, facts_of(found.known.contents), found.branches.unknown, answer);
    answer.notes.emplace_back(
        "epsilon is that of the lines that count, with reservations counted in full: a lower bound "
        "for the whole ledger");
  }
  for (std::string& note : advice(found)) answer.notes.push_back(std::move(note));
  return answer;
}

}  // namespace sotto::budget
