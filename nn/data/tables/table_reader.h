// Reads tables as a schema describes them: each row becomes the inputs and the target of a sample.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>

#include "nn/data/dataset.h"
#include "nn/data/tables/table_schema.h"

namespace sotto {

struct TableOptions {
  // False: no labels, as in rows to predict. The columns of the label and the user are ignored and
  // may be missing (without a header: only the label's); targets are [n, 0].
  bool labels = true;
  // True: `inputs` are only the numbers, and the field "categories", i64 [n, columns of kind
  // category], has the indices of the categories, for embeddings.
  bool category_indices = false;
};

// Streams the rows of a CSV or TSV file, plain or gzip-compressed, in constant memory but for the
// texts of the users. A sample's inputs, f32 [width], are in the order of the schema's columns:
// numbers clamped to their public range and scaled, and for each category 1 or 0. Targets are i64
// classes [n], or for a label that is a number its encoded value, f32 [n, 1]. The units number the
// users in the order in which they appear.
//
// Members throw SystemFailure with the file, line, column and value for malformed CSV
// (nn/data/tables/csv_reader.h), a header without a column of the schema, with one that it does not
// know or one twice, a text that is not a number, an unknown category, and a missing value that the
// schema does not allow.
class TableReader {
 public:
  // Throws std::invalid_argument for a schema that is not sound.
  TableReader(const std::string& path, const TableSchema& schema, const TableOptions& options = {});
  // Reads from a stream, which must outlive the reader; `name` is its name in messages.
  TableReader(std::istream& in, const std::string& name, const TableSchema& schema,
              const TableOptions& options = {});
  TableReader(const TableReader&) = delete;
  TableReader& operator=(const TableReader&) = delete;
  ~TableReader();

  // The next rows, max_rows >= 1 or fewer at the end of the file; none after it.
  Dataset next(std::int64_t max_rows);

 private:
  class Encoder;
  std::unique_ptr<Encoder> encoder_;
};

// Reads all rows. With a folder, they are encoded once into files without names there, which are
// mapped, so that a table may be larger than memory: the files' pages are read when they are used,
// and are gone with the data set. They are readable for their owner alone; a file system in memory,
// as /tmp often is, does not help. Throws SystemFailure as TableReader does, for a table without
// rows, and when the folder cannot be written to.
Dataset read_table(const std::string& path, const TableSchema& schema,
                   const TableOptions& options = {}, const std::string& folder = {});

}  // namespace sotto
