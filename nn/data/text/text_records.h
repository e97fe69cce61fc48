// Texts before they become numbers: the columns of a table, or the units of text files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/data/text/text_files.h"

namespace sotto {

// Text k, the text before it, its class and the unit of privacy that it belongs to.
struct TextRecords {
  std::vector<std::string> texts = {};    // UTF-8
  std::vector<std::string> prompts = {};  // what stands before each text; empty: nothing does
  std::vector<std::int64_t> labels = {};  // numbers of classes; empty: there are none
  std::vector<std::string> classes = {};  // names, by number
  std::vector<std::int64_t> units = {};   // numbers from 0; empty: each text is a unit
};

// The columns of a table, by the names in its first record. Empty names are not read.
struct TextColumns {
  std::string text = "text";  // the texts
  std::string prompt = {};    // what stands before each
  std::string label = {};     // names of classes
  std::string user = {};      // all rows of a user are one unit; empty: each row is one
};

// True for a path that read_text_table() reads by its ending: .tsv, .csv, also with .gz.
bool is_text_table(const std::string& path);

// Reads a table, plain or gzip-compressed. In .csv files commas separate fields and quotes may
// surround them (RFC 4180); in .tsv files tabs separate them and quotes are characters like others.
// Classes are numbered as in `classes`, or by the order of their names if that is empty; the names
// must be public. Throws SystemFailure, with file and line, for a malformed file, text that is not
// UTF-8, a row without a user and a class that is not in `classes`; std::invalid_argument, with the
// names that there are, for a column that is missing.
TextRecords read_text_table(const std::string& path, const TextColumns& columns,
                            const std::vector<std::string>& classes = {});

// The units of a file, without classes, or of a folder's files by class (read_text_folder), as
// `options.unit` divides them. Throws as read_text_files() and read_text_folder().
TextRecords read_text_units(const std::string& path, const TextOptions& options,
                            const std::vector<std::string>& classes = {});

}  // namespace sotto
