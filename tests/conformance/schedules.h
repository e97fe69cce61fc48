// Learning-rate schedules of the optim cases.
#pragma once

#include "nn/optim/schedule.h"
#include "tests/conformance/case.h"

namespace sotto::conformance {

// Throws Malformed for a type or formula that is not in the vocabulary.
nn::Schedule read_schedule(const Json& scheduler);

}  // namespace sotto::conformance
