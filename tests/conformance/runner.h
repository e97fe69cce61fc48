// Runs a folder of cases and reports the results.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"

namespace sotto::conformance {

struct Selection {
  std::filesystem::path folder;
  std::vector<Dtype> dtypes{Dtype::f32, Dtype::f64};
  std::string kind;      // all when empty
  std::string name;      // all when empty
  Device device = cpu;   // device of all computations except the accountants'
  bool tf32 = false;     // the device rounds f32 factors to 11 bits
  bool verbose = false;  // every deviation, not only the worst of a case
};

enum class Outcome { passed, failed, skipped };

struct Result {
  std::string kind, type, name;
  Outcome outcome = Outcome::passed;
  bool malformed = false;
  std::string reason;              // of a skipped case
  std::vector<std::string> lines;  // the deviations of a failed case, the worst first
  bool single_precision = false;   // passed, but in f64 it agrees to single precision only
};

// Runs every selected case under the folder, in the order of their paths. Throws SystemFailure when
// the folder cannot be read.
std::vector<Result> run_all(const Selection& selection);

// Prints a line for each failing case, reasons of skipping, a table by kind and type, and the
// closing line "N passed, N failed, N skipped".
void print_report(const std::vector<Result>& results, bool verbose);

}  // namespace sotto::conformance
