// The units of privacy of a data set, for an engine.
#pragma once

#include "dp/engine/engine.h"

namespace sotto {

// The options for training on this data set: rows_of_unit gives the samples of the units that it
// names, the k-th by rising number being unit k of the engine. Where it names none, each sample is
// a unit, and the options stay as they are. Throws std::invalid_argument when both name rows; and
// when a unit has several samples while options.unit still says that it is one training example: of
// one example among several of a unit nothing is promised.
EngineOptions with_units_of(const Dataset& data, EngineOptions options);

}  // namespace sotto
