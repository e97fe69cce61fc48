// Text in files, as rows of symbols' numbers with the units of privacy that they belong to.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nn/data/dataset.h"
#include "nn/data/text/text_vocabulary.h"

namespace sotto {

// The unit of privacy, whose text a private model hides as a whole.
enum class TextUnit {
  line,
  paragraph,  // lines up to one that is blank: such as a speech of a play
  file,
  separated,  // by TextOptions::separator, whose line ends may lack at the ends of a file
};

// A unit with more symbols than the context.
enum class LongUnit {
  cut,    // its beginning is one row
  split,  // it becomes several rows of one unit
};

struct TextOptions {
  TextUnit unit = TextUnit::line;       // one unit of privacy
  std::string separator = {};           // for TextUnit::separated, which takes it out
  std::int64_t context = 128;           // symbols of a row
  LongUnit long_units = LongUnit::cut;  // longer units
  // The symbols and their numbers; public.
  TextVocabulary vocabulary = TextVocabulary::bytes();
};

// A row for each unit, or several, in the order of the text: inputs are the symbols' numbers [n,
// context] i64, padded with 0; the field "lengths" [n] i64 has their number before the padding,
// targets [n] i64 are 0, and `units` count from 0; with LongUnit::cut, where no unit has several
// rows, an engine is faster if `units` are cleared. Units without text are left out. A carriage
// return before the end of a line, and a byte-order mark at the beginning, are not text. `name` is
// the text's name in messages. Throws SystemFailure, with name, offset or line, and value, for
// bytes that are not UTF-8 and characters that the vocabulary lacks; std::invalid_argument for a
// context below 1 or an empty separator.
Dataset text_dataset(std::string_view text, const std::string& name,
                     const TextOptions& options = {});

// A data set of text, and the names of its classes.
struct TextFiles {
  Dataset data = {};                      // as of text_dataset, but for the targets: the classes
  std::vector<std::string> classes = {};  // by number; none without classes
};

// Reads files, plain or gzip-compressed, one after the other; units do not go on from one to the
// next. Throws SystemFailure as text_dataset, and for a file that cannot be read.
TextFiles read_text_files(std::span<const std::string> paths, const TextOptions& options = {});

// Reads the files of a folder by class. A file directly in it is a class, named by the file without
// .txt and .gz; so is a sub-folder with files, at any depth. Classes are numbered as in `classes`,
// or by the order of their names if that is empty. The names and the number of classes must be
// public. Names that begin with a dot are skipped, symbolic links followed. Throws SystemFailure as
// read_text_files; and for a folder that is missing, a class that is empty or not in `classes`, and
// links that lead back.
TextFiles read_text_folder(const std::string& folder, const TextOptions& options = {},
                           const std::vector<std::string>& classes = {});

}  // namespace sotto
