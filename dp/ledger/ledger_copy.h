// The copy of a ledger that a run holds, and the file that it is kept up to date with.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "dp/ledger/ledger_file.h"
#include "dp/ledger/ledger_position.h"
#include "dp/ledger/ledger_text.h"

namespace sotto {

// Other runs append to the file, too: whatever reads or writes it needs its lock, file().lock(). A
// ledger in memory has no file. After an exception the file's end is unknown, and the copy is not
// usable().
class LedgerCopy {
 public:
  // The copy is empty until read_all().
  explicit LedgerCopy(LedgerFile file) : file_(std::move(file)) {}

  const LedgerFile& file() const { return file_; }
  LedgerText& text() { return text_; }
  // The run with this id; an empty one if the ledger has no line of it.
  const LedgerRun& run(const std::string& id) const;
  bool usable() const { return usable_; }
  // The number of lines that refresh() read.
  std::int64_t lines_of_others() const { return lines_of_others_; }

  // Reads a file from its beginning. Throws SystemFailure where Ledger::open() does.
  void read_all();
  // Completes or removes an incomplete last line that a crash left.
  void repair();
  // Throws SystemFailure unless the file is the ledger of this position and still has its lines.
  void check_position(const LedgerPosition& mark) const;
  // Brings the copy up to date with the file. Throws SystemFailure if the file was changed
  // otherwise than by lines of other runs, with the copy saved beside it if it has a release.
  void refresh(const std::string& run);
  // Appends lines of `text()` to the file, if there is one.
  void append(const std::string& lines);

 private:
  std::optional<std::string> text_after(std::size_t size, const std::string& checksum) const;
  void trim_lines();
  void read_news();
  std::string rescue();

  LedgerFile file_;
  LedgerText text_;
  std::string lines_;  // of the file, for rescue()
  std::int64_t lines_of_others_ = 0;
  bool usable_ = true;
};

}  // namespace sotto
