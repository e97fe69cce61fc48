// Guesses a table's schema from its rows. A schema is public, and the rows may not be: whoever uses
// a guess must know its ranges and categories from elsewhere, or make them public knowingly.
#pragma once

#include <string>
#include <vector>

#include "nn/data/tables/table_schema.h"

namespace sotto {

// Options of a guess.
struct GuessOptions {
  std::string label = {};  // the label's column; the last one if left out
  std::string user = {};   // the user's column; none if left out
};

// A proposal, and what it was read from.
struct SchemaGuess {
  TableSchema schema = {};  // the proposal
  // For each column, what had to be read from the data to guess it.
  std::vector<std::string> notes = {};

  // The schema's JSON form with the notes as comments.
  std::string to_json() const { return schema.to_json(notes); }
};

// Reads a CSV or TSV file, plain or gzip-compressed, whole. The first record is a header if none of
// its fields is a number or empty, and they differ; else columns are called column_1, column_2 and
// so on. A column of numbers is one of kind `number`, with the range of its values and the middle
// of it for missing ones. Texts are of kind `category` if at most 100 differ, and else ignored, as
// are columns of one value. A label of at most 20 numbers, or of texts, has classes. Throws
// SystemFailure for malformed CSV and for a file without rows, and std::invalid_argument for a
// column in the options that is not there, and for a label of one class or of too many.
SchemaGuess guess_schema(const std::string& path, const GuessOptions& options = {});

}  // namespace sotto
