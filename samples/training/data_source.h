// A task's data, and where they come from: the program makes them up, or reads files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>

#include "nn/data/dataset.h"

namespace sotto::samples {

class CommandLine;
struct Settings;

struct Data {
  Dataset train, test;
  std::uint64_t hash_of_rest = 0;  // of other data that the task has read (Dataset::hash)
  // Writes what may serve to load the same data again; unset: nothing.
  std::function<void(const Data& data)> keep = {};
};

// Nobody's data, in words: "people made up by the program".
struct MadeUp {
  std::string what;
};
// Files or folders.
struct Files {
  std::string train;
  std::string test;  // empty: a part of the training data is held out
};
using DataSource = std::variant<MadeUp, Files>;

// Declares an option, such as --data or --test, which gives a path of the files.
void add_files_option(CommandLine& line, const char* name, DataSource& source,
                      std::string Files::*path, const std::string& text, const char* type);
// Throws std::invalid_argument, "--test: needs --data", for test files alone.
void check_source(const DataSource& source);

// Null if the data are made up.
const Files* files_of(const DataSource& source);
// "people made up by the program", or "from FILE".
std::string text_of(const DataSource& source);
// True if the test data are a part of the data that privacy protects: then results on them are
// not private, whatever the training was.
bool tests_on_private_data(const DataSource& source);

// Throws std::invalid_argument for a value of --test-fraction that leaves nothing.
void check_test_fraction(double fraction);
// Returns the parts, training and test data. Throws std::invalid_argument, with the option that
// divided them and its value, if one is empty.
Data divided(std::pair<Dataset, Dataset> parts, const char* option, double value);
// Makes room for a batch in the number of training units, which is not known before the files are
// read: no batch is refused before.
void expect_batch(Settings& settings);

}  // namespace sotto::samples
