// The privacy units of a data set, for an engine.
#pragma once

#include "dp/engine/engine_options.h"
#include "nn/data/dataset.h"

namespace sotto {

// Returns the options for training on this data set. If the data set names units (Dataset::units),
// rows_of_unit is set to their samples: unit k of the engine is the one with the k-th smallest
// number. So it is where no unit has several samples, because that is private: the sensitivity
// would say it. Leave Dataset::units empty only where no unit could have had several. Throws
// std::invalid_argument if the data set names units and the options already have rows_of_unit, or
// options.unit is still one training example: the guarantee holds for the unit only.
EngineOptions with_units_of(const Dataset& data, EngineOptions options);

}  // namespace sotto
