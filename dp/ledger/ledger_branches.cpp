#include "dp/ledger/ledger_branches.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "dp/ledger/ledger_text.h"

namespace sotto {

namespace {

// The lines of a file, and which of them follow which.
class Links {
 public:
  explicit Links(const std::string& file) {
    for (std::size_t at = 0; at < file.size();) {
      const std::size_t end = std::min(file.find('\n', at), file.size());
      texts.push_back(file.substr(at, end - at));
      checksums.push_back(stated_checksum(texts.back()));
      at = end + 1;
    }
    lines.resize(texts.size());
    next.resize(texts.size());
    for (std::size_t line = 0; line < texts.size(); ++line) link(line);
  }

  std::vector<std::string> texts, checksums;
  std::vector<LedgerBranches::Line> lines;
  std::vector<std::size_t> first;              // lines
  std::vector<std::vector<std::size_t>> next;  // the lines that follow each

 private:
  void link(std::size_t line) {
    if (checksums[line].empty()) return;
    const auto [known, is_new] = known_.emplace(texts[line], line);
    if (!is_new) {
      lines[line] = {lines[known->second].after, number(known->second)};
    } else if (follows("", texts[line])) {
      lines[line].after = 0;
      first.push_back(line);
    } else if (const auto found = line_before(line)) {
      lines[line].after = number(*found);
      next[*found].push_back(line);
      std::erase(ends_, *found);
    }
    if (is_new) ends_.push_back(line);
  }

  // Most lines follow the one before them, or the last one of a copy. A torn or altered line may
  // end with the checksum of another one, which is then the line before.
  std::optional<std::size_t> line_before(std::size_t line) {
    std::optional<std::size_t> torn;
    const auto takes = [&](std::size_t other) {
      if (other == line || !fits(other, line)) return false;
      if (lines[other].after < 0) torn = torn.value_or(other);
      return lines[other].after >= 0;
    };
    for (auto end = ends_.rbegin(); end != ends_.rend(); ++end)
      if (takes(*end)) return *end;
    for (std::size_t other = 0; other < texts.size(); ++other)
      if (takes(other)) return other;
    return torn;
  }

  // Gives up on files with so many lines out of place that this would take minutes.
  bool fits(std::size_t before, std::size_t line) {
    constexpr std::int64_t max_tries = 1 << 22;
    if (checksums[before].empty() || tries_ > max_tries) return false;
    ++tries_;
    return follows(checksums[before], texts[line]);
  }

  static std::int64_t number(std::size_t line) { return static_cast<std::int64_t>(line) + 1; }

  std::unordered_map<std::string, std::size_t> known_;
  std::vector<std::size_t> ends_;
  std::int64_t tries_ = 0;
};

// Each copy is charged again for the rest of an epoch that was charged before the copy was made.
EventCounts with_epochs(const EventCounts& counts) {
  EventCounts all = counts;
  for (const auto& [event, count] : counts) {
    if (!event.paid) continue;
    Event first = event;
    first.paid = false;
    const auto begun = std::ranges::find(all, first, &EventCounts::value_type::first);
    const std::int64_t needed = (count + event.batches - 2) / (event.batches - 1),
                       missing = needed - (begun == all.end() ? 0 : begun->second);
    if (missing > 0) add_releases(all, first, missing);
  }
  return all;
}

// The releases of the lines after a fork, up to the next one.
class Branch {
 public:
  explicit Branch(const LedgerContents& fork) {
    for (const LedgerRun& run : fork.runs) runs_[run.id] = run;
  }

  // Adds a line of this run, which is now so.
  void add(const LedgerRun& run) {
    LedgerRun& before = runs_[run.id];
    selects_ = selects_ || (run.selection && !before.selection);
    EventCounts change = run.events;
    for (const auto& [event, count] : before.events) add_releases(change, event, -count);
    for (const auto& [event, count] : change) {
      if (count > 0) reserved_.insert(run.id);
      if (reserved_.contains(run.id)) add_releases(releases_, event, count);
    }
    before = run;
  }

  LedgerRun run() const {
    LedgerRun run;
    run.events = with_epochs(releases_);
    return run;
  }
  bool selects() const { return selects_; }

 private:
  EventCounts releases_;
  std::map<std::string, LedgerRun> runs_;
  std::set<std::string> reserved_;  // runs whose last reservation is in these lines
  bool selects_ = false;
};

// Reads the lines that follow one another, piece by piece between forks.
class Replay {
 public:
  Replay(const Links& links, LedgerBranches& found) : links_(links), found_(found) {
    const bool forked = links.first.size() > 1;
    for (const std::size_t line : links.first) pieces_.insert(pieces_.begin(), {line, {}, forked});
    while (!pieces_.empty()) {
      Piece piece = std::move(pieces_.back());
      pieces_.pop_back();
      read(piece);
    }
    auto& runs = found.contents.runs;
    runs.insert(runs.end(), branches_.begin(), branches_.end());
  }

 private:
  struct Piece {
    std::size_t line;
    LedgerText text;
    bool forked;
  };

  void read(Piece& piece) {
    Branch branch(piece.forked ? piece.text.contents : LedgerContents());
    for (std::size_t line = piece.line;; line = links_.next[line].front()) {
      if (!read_right_lines(piece.text, links_.texts[line] + '\n').empty()) break;
      ++found_.counted;
      if (piece.forked && links_.lines[line].after > 0)
        branch.add(piece.text.contents.run(piece.text.run));
      if (links_.next[line].size() == 1) continue;
      if (links_.next[line].empty()) ++found_.copies;
      for (const std::size_t next : links_.next[line]) pieces_.push_back({next, piece.text, true});
      break;
    }
    take(piece, branch);
  }

  void take(const Piece& piece, const Branch& branch) {
    LedgerContents& contents = found_.contents;
    std::vector<std::string> reasons = std::move(contents.reasons);
    if (!piece.forked) contents = piece.text.contents;
    if (contents.id.empty()) {
      contents.id = piece.text.contents.id;
      contents.header = piece.text.contents.header;
    }
    contents.reasons = std::move(reasons);
    for (const std::string& reason : piece.text.contents.reasons)
      if (std::ranges::find(contents.reasons, reason) == contents.reasons.end())
        contents.reasons.push_back(reason);
    if (LedgerRun run = branch.run(); !run.events.empty()) branches_.push_back(std::move(run));
    if (branch.selects()) found_.unknown = "a private selection was charged on a copy";
  }

  const Links& links_;
  LedgerBranches& found_;
  std::vector<Piece> pieces_;
  std::vector<LedgerRun> branches_;
};

}  // namespace

LedgerBranches read_branches(const std::string& file) {
  Links links(file);
  LedgerBranches found;
  const Replay replay(links, found);
  found.lines = std::move(links.lines);
  return found;
}

}  // namespace sotto
