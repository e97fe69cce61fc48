// The privacy statement of a training on its page.
#pragma once

#include <string>

#include "samples/report/report.h"

namespace sotto {

// Epsilon and delta for people, rounded up; a negative value, the tick of an axis, as it is.
std::string shown_epsilon(double epsilon);
std::string shown_delta(double delta);

// What the guarantee is, for whom, what it does not cover and what it takes for granted; that there
// is none, if the report has no statement.
std::string statement_section(const TrainingReport& report);

}  // namespace sotto
