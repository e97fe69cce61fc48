// Predictions as CSV: a line for each row, with its class and the probability of every class.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace sotto::samples {

// The text as a field of a CSV file (RFC 4180).
std::string csv_field(const std::string& text);

// Returns "file,class,p(cat),p(dog)" as a line; `columns` are "file,class".
std::string prediction_header(const std::string& columns, const std::vector<std::string>& classes);
// Returns lines such as "cat,0.900000,0.100000" for logits [n, classes], each after begin(row).
std::string prediction_lines(const Tensor& logits, const std::vector<std::string>& classes,
                             const std::function<std::string(std::size_t row)>& begin);

}  // namespace sotto::samples
