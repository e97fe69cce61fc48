// Reads CSV and TSV files record by record, whatever their size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace sotto {

struct CsvOptions {
  char delimiter = ',';
  bool quotes = true;  // false: quotes are characters like others
  // The limit of a record's size: the bytes of its fields, and one more for each.
  std::size_t max_record_bytes = std::size_t{1} << 20;
  // The first record may have one field less than the rows, as in R's tables with row names, or one
  // more, if that is empty and the last.
  bool ragged_header = false;
};

// Streams the records of a CSV file (RFC 4180), plain or gzip-compressed. Quotes surround fields
// that hold delimiters, line ends or quotes, which are doubled. Lines end with LF, CR or both. A
// byte-order mark, comments (csv_preamble.h) and Excel's delimiter line `sep=;` at the beginning,
// Ctrl-Z at the end, empty lines, and the spaces and tabs around a field are skipped. If the file
// begins with a comment, all later lines that begin with '#' are comments. Otherwise such a line is
// a comment if it has no delimiter, there are several columns, and no record begins so. Behind a
// first record of one field an empty line is a record with an empty field. A thread parses the next
// piece of the file ahead.
//
// Every member throws SystemFailure, with file and line, for a file that cannot be read or is of
// another kind, and, when the records before have been returned, for a quote that is not closed,
// one within a field, a zero byte, a record above the limit, and one with more or fewer fields than
// the first.
class CsvReader {
 public:
  // Throws std::invalid_argument for a delimiter that is a quote, a line end or not ASCII.
  explicit CsvReader(const std::string& path, const CsvOptions& options = {});
  // Reads from a stream, which must outlive the reader; `name` is its name in messages.
  CsvReader(std::istream& in, std::string name, const CsvOptions& options = {});
  CsvReader(const CsvReader&) = delete;
  CsvReader& operator=(const CsvReader&) = delete;
  ~CsvReader();

  // Moves to the next record, or returns false at the end of the file.
  bool next();
  // The fields of the record; valid until next().
  std::span<const std::string_view> fields() const;
  // The line, from 1, in which the record begins.
  std::int64_t line() const;
  const std::string& name() const;
  // The delimiter of the records so far; the file's first line may set another one than the
  // options.
  char delimiter() const;
  // The number of the file's first lines that are comments or set the delimiter.
  std::int64_t preamble_lines() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sotto
