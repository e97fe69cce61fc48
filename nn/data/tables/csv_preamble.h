// The parts of a CSV file besides its records: comments, Excel's delimiter line, DOS's mark of the
// end of a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sotto {

// The lines before the first record.
struct CsvPreamble {
  std::size_t bytes = 0;   // with a byte-order mark
  std::int64_t lines = 0;  // how many end in them
  char delimiter = ',';    // that of a line `sep=;`, or the one that was given
  bool comments = false;   // whether there is a comment
};

// Reads the preamble from a file's beginning, plain text. A first line of `sep=` and a character
// sets the delimiter, as Excel writes it. Lines that begin with '#' before the first other line
// that is not blank are comments. Exception: such a line with as many fields as that first line, at
// least two, is a record if its text follows the '#' directly, as in "#chrom", and a header if the
// first line has a number.
CsvPreamble csv_preamble(std::string_view beginning, char delimiter);

// Shortens comments to the '#' that begins them: lines that begin so and are not in quotes, of a
// text that comes in pieces.
class CommentFilter {
 public:
  // Without a comment at the beginning of the text its first line is none, whatever it begins with.
  explicit CommentFilter(bool at_line = false) : at_line_(at_line) {}

  void filter(std::string& piece);

 private:
  bool at_line_, comment_ = false, quotes_ = false;
};

// The offset of 0x1A, Ctrl-Z, where it and ends of lines alone are the rest of the text; else its
// size.
std::size_t end_mark(std::string_view text);

}  // namespace sotto
