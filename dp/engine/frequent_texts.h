// The texts that many units of a private table share, found without a list of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dp/noise/bounded_statistics.h"
#include "nn/data/tables/table_schema.h"

namespace sotto {

// The releases that a search makes, and the standard deviation of their noise on the fractions of
// so many histograms.
struct HistogramRelease {
  std::function<std::vector<double>(HistogramSum& sum)> release = {};
  std::function<double(std::int64_t histograms)> noise_of = {};
};

// Finds the frequent texts of a table's columns by two releases of histograms, whose sensitivity is
// bounded by their number whatever the texts are, so that no list of candidates is needed:
//   1. counts of the units by a public hash of their text, of which those above the noise are kept;
//   2. for each hash kept, and each place in a text, counts of the units by the byte at that place:
//      the text is that of the most frequent bytes, and is believed if it has the hash.
// A text of more than 32 bytes is not found. A user's first row alone counts.
class FrequentTexts {
 public:
  // The number of releases that find() makes.
  static constexpr std::int64_t releases = 2;

  // Counts the columns of kind category that have no categories yet, in a file that TableReader can
  // read.
  FrequentTexts(std::string path, const TableSchema& draft);
  std::int64_t columns() const { return std::ssize(columns_); }
  // The fraction of the units that must share a text for it to be found.
  double least_fraction(const HistogramRelease& histograms) const;
  // The texts of each column, in their order, 100 at most.
  std::vector<std::vector<std::string>> find(const HistogramRelease& histograms) const;

 private:
  using Bins = std::vector<std::vector<std::int64_t>>;  // of each column
  using OnUnit = std::function<void(const std::vector<std::string>& texts)>;
  void each(const OnUnit& f) const;
  std::int64_t hash(std::size_t column, const std::string& text) const;
  Bins frequent_hashes(const HistogramRelease& histograms) const;
  std::vector<double> count_bytes(const Bins& kept, const HistogramRelease& histograms) const;

  std::string path_;
  TableSchema schema_;
  std::vector<std::size_t> columns_;  // their numbers in the schema
};

}  // namespace sotto
