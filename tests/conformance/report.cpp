#include <array>
#include <map>

#include <fmt/format.h>

#include "tests/conformance/runner.h"

#include "core/join.h"

namespace sotto::conformance {

namespace {

using Counts = std::array<int, 3>;  // by Outcome

void print_failures(const std::vector<Result>& results, bool verbose) {
  for (const Result& result : results) {
    if (result.outcome != Outcome::failed) continue;
    const std::size_t more = result.lines.size() - 1;
    fmt::print("FAILED {}/{} ({}): {}{}\n", result.kind, result.name, result.type, result.lines[0],
               more == 0 || verbose ? "" : fmt::format(" (and {} more)", more));
    for (std::size_t i = 1; verbose && i < result.lines.size(); ++i) {
      fmt::print("    {}\n", result.lines[i]);
    }
  }
}

void print_skips(const std::vector<Result>& results) {
  std::map<std::string, std::vector<std::string>> names;
  for (const Result& result : results) {
    if (result.outcome == Outcome::skipped)
      names[result.reason].push_back(result.kind + "/" + result.name);
  }
  for (const auto& [reason, cases] : names) {
    fmt::print("skipped, {}: {}\n", reason, join(cases, " "));
  }
}

void print_single_precision(const std::vector<Result>& results) {
  for (const Result& result : results) {
    if (result.single_precision && result.outcome == Outcome::passed) {
      fmt::print(
          "note: {}/{} agrees in double to single precision only, as where the reference rounded a "
          "constant\n",
          result.kind, result.name);
    }
  }
}

void print_table(const std::vector<Result>& results) {
  std::map<std::pair<std::string, std::string>, Counts> table;
  for (const Result& result : results) {
    ++table[{result.kind, result.type}][static_cast<std::size_t>(result.outcome)];
  }
  fmt::print("{:<10} {:<20} {:>7} {:>7} {:>7}\n", "kind", "type", "passed", "failed", "skipped");
  for (const auto& [place, counts] : table) {
    fmt::print("{:<10} {:<20} {:>7} {:>7} {:>7}\n", place.first, place.second, counts[0], counts[1],
               counts[2]);
  }
}

}  // namespace

void print_report(const std::vector<Result>& results, bool verbose) {
  print_failures(results, verbose);
  print_skips(results);
  print_single_precision(results);
  print_table(results);
  Counts counts{};
  for (const Result& result : results) ++counts[static_cast<std::size_t>(result.outcome)];
  fmt::print("{} passed, {} failed, {} skipped\n", counts[0], counts[1], counts[2]);
}

}  // namespace sotto::conformance
