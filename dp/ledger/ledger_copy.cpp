#include "dp/ledger/ledger_copy.h"

#include <algorithm>

#include "core/error.h"
#include "core/io/atomic_file.h"

namespace sotto {

const LedgerRun& LedgerCopy::run(const std::string& id) const {
  static const LedgerRun none;
  const auto& runs = text_.contents.runs;
  const auto found =
      std::find_if(runs.begin(), runs.end(), [&](const LedgerRun& run) { return run.id == id; });
  return found == runs.end() ? none : *found;
}

void LedgerCopy::read_all() {
  lines_ = file_.read(0);
  read_ledger(text_, lines_, file_.path());
}

void LedgerCopy::repair() {
  usable_ = false;
  trim_lines();
  const std::size_t kept = text_.size - (text_.missing_newline ? 1 : 0);
  if (!file_.read(kept).empty()) file_.truncate(kept);
  if (text_.missing_newline) file_.append("\n");
  text_.missing_newline = false;
  usable_ = true;
}

void LedgerCopy::check_position(const LedgerPosition& mark) const {
  const std::string& path = file_.path();
  if (mark.ledger != text_.contents.id) {
    throw SystemFailure(
        fmt::format("ledger: {}: not the checkpoint's ledger: its id is {}, and {} "
                    "was used",
                    path, text_.contents.id, mark.ledger));
  }
  if (mark.bytes > text_.size) {
    throw SystemFailure(
        fmt::format("ledger: {}: behind the checkpoint, which saw {} lines, and here are {}: it "
                    "was cut short, or an old copy was put back",
                    path, mark.lines, text_.lines));
  }
  if (!text_after(mark.bytes, mark.checksum)) {
    throw SystemFailure(
        fmt::format("ledger: {}: its first {} lines are not those that the checkpoint saw: it was "
                    "edited, or an old copy was put back and used",
                    path, mark.lines));
  }
}

// The file's text after `size` bytes; nullopt when no line with that checksum ends there.
std::optional<std::string> LedgerCopy::text_after(std::size_t size,
                                                  const std::string& checksum) const {
  const std::string end = line_end(checksum);
  if (size <= end.size()) return std::nullopt;
  std::string text = file_.read(size - 1 - end.size());
  if (!text.starts_with(end)) return std::nullopt;
  return text.erase(0, end.size() + 1);
}

// Cuts the copy of the file after its last complete line, and ends that with a newline.
void LedgerCopy::trim_lines() {
  lines_.resize(text_.size - (text_.missing_newline ? 1 : 0));
  if (text_.missing_newline) lines_ += '\n';
}

// Reads the lines that other runs appended. They count even if the path no longer names the file,
// which is checked afterwards.
void LedgerCopy::read_news() {
  const std::optional<std::string> more = text_after(text_.size, text_.checksum);
  if (!more)
    throw SystemFailure("ledger: cut, edited or replaced while it was in use: " + file_.path());
  lines_ += *more;
  read_ledger(text_, *more, file_.path());
  file_.check_in_place();
}

// Saves this run's copy of the lines beside a file that has lost some of them. Returns text for the
// error message; empty if no release is known.
std::string LedgerCopy::rescue() {
  if (text_.contents.events().empty()) return "";
  trim_lines();
  try {
    return "; what this run knows of it is saved as " +
           write_new_file(file_.path() + ".rescue", lines_);
  } catch (const SystemFailure& error) {
    return fmt::format("; what this run knows of it cannot be saved: {}", error.what());
  }
}

void LedgerCopy::refresh(const std::string& run) {
  if (!file_.exists()) return;
  usable_ = false;
  const LedgerRun mine = this->run(run);
  const std::int64_t lines = text_.lines;
  try {
    read_news();
  } catch (const SystemFailure& error) {
    throw SystemFailure(error.what() + rescue());
  }
  lines_of_others_ += text_.lines - lines;
  if (this->run(run) != mine) {
    throw SystemFailure(
        fmt::format("ledger: {}: run {} was continued by another ledger", file_.path(), run));
  }
  repair();
}

// A failed append leaves unknown bytes on the disk, so usable_ stays false: no more is appended.
void LedgerCopy::append(const std::string& lines) {
  if (lines.empty() || !file_.exists()) return;
  usable_ = false;
  file_.append(lines);
  lines_ += lines;
  usable_ = true;
}

}  // namespace sotto
