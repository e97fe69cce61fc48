// Guesses a table's schema from its rows. A schema is public, and the rows may not be: whoever uses
// a guess must know its ranges and categories from elsewhere, or make them public knowingly.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nn/data/tables/table_schema.h"

namespace sotto {

struct GuessOptions {
  std::string label = {};  // the label's column; the last one if left out
  std::string user = {};   // the user's column; none if left out
  // Whether the first record has the names of the columns; by the rows if left out.
  std::optional<bool> header = {};
};

// A proposed schema, with notes on the private data it was read from.
struct SchemaGuess {
  TableSchema schema = {};  // the proposal
  // For each column, the facts that were read from the data to guess it.
  std::vector<std::string> notes = {};
  // The reason for the decision whether there is a header.
  std::string header_note = {};

  // The schema's JSON form with the notes as comments.
  std::string to_json() const { return schema.to_json(notes, header_note); }
};

// Reads a CSV or TSV file, plain or gzip-compressed, whole. The first record is a header if it
// differs in kind from the rows: names above numbers or dates, or an empty field above numbers of
// rows; or if it has several usual names. It is a row if it has numbers above numbers, or texts
// that occur below. Without a header the columns are column_1, column_2 and so on. With one, a
// column without a name or with a repeated one gets pandas's name, "Unnamed: 3" or "age.1", and is
// ignored. A column of numbers has the kind `number`, the range of its values, and the middle of
// the range for missing values. Texts are of kind `category` if at most 100 differ, and else
// ignored, as are columns of one value. A label of at most 20 numbers, or of texts, has classes;
// the default is the last column with a name of its own. Throws SystemFailure for malformed CSV,
// for a file without rows, and for one that has its header again; std::invalid_argument for a
// column in the options that is not there, for a label of one class or of too many, and where the
// rows do not tell whether the first record is a header.
SchemaGuess guess_schema(const std::string& path, const GuessOptions& options = {});

}  // namespace sotto
