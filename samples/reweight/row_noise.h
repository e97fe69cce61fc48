// Rows held out of labelled data as public, and faults made in the others: wrong labels and long
// tails, for trying out weights of rows. All choices come from a public seed.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "nn/data/dataset.h"

namespace sotto::reweight {

// Which label a wrong one is: that of the next class (of class 0 after the last), or of another
// class at random, each equally likely.
inline constexpr const char* wrong_next = "next";
inline constexpr const char* wrong_random = "random";

// The field that make_wrong_labels() adds: 1 for rows whose label it changed, else 0.
inline constexpr const char* changed_field = "changed";

// Divides the data into `count` clean rows, as many of each class as of any other (the first
// classes have one more if they do not divide `count`), and the rest; both keep the data's order.
// Throws std::invalid_argument, naming --clean, for a class with too few rows.
std::pair<Dataset, Dataset> hold_out_clean(const Dataset& data, std::int64_t classes,
                                           std::int64_t count, std::uint64_t seed);

// largest / factor^(k / (classes - 1)), rounded down, for k = 0, 1, ... (Cui et al. 2019).
std::vector<std::int64_t> long_tailed_counts(std::int64_t largest, std::int64_t classes,
                                             double factor);
// Some rows of the data, by these counts, which the seed assigns to the classes; the largest is the
// number of rows of the smallest class. Which rows are kept depends on the other rows of the class:
// privacy is that of the rows that are kept. Throws std::invalid_argument, naming --imbalance, if a
// class would be empty.
Dataset make_long_tailed(const Dataset& data, std::int64_t classes, double factor,
                         std::uint64_t seed);

// Changes the labels of round(fraction * n) rows, drawn by their numbers alone; the result has the
// changed_field. Throws std::invalid_argument unless `wrong` is one of the two above.
Dataset make_wrong_labels(const Dataset& data, std::int64_t classes, double fraction,
                          const std::string& wrong, std::uint64_t seed);

// The number of rows of `clean` whose inputs are those of a row of `data`, to the last bit.
std::int64_t rows_in_both(const Dataset& clean, const Dataset& data);

}  // namespace sotto::reweight
