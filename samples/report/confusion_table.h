// How often a model predicts each class for each, as a table for people.
#pragma once

#include <string>

#include "samples/report/report.h"

namespace sotto {

// Rows are true classes and columns predicted ones, with totals, shaded by the share of the row.
// Throws std::invalid_argument unless there is a count for each pair.
std::string confusion_table(const TrainingReport::Confusion& confusion);

}  // namespace sotto
