// Private standardising: means and deviations of the inputs' columns, released through the ledger
// into a layer of the model.
#pragma once

#include <cstdint>
#include <map>

#include "dp/engine/engine.h"
#include "nn/layers/norm_layers.h"

namespace sotto {
struct TableSchema;
}

namespace sotto {

// Options of standardize().
struct StandardizeOptions {
  // The layer that gets means and deviations: the model's first one.
  nn::Standardize* layer = nullptr;
  // The public ranges of the columns to standardise, by their numbers; values are clamped to them
  // for the statistics alone. Other columns stay as they are.
  std::map<std::int64_t, StatisticRange> ranges = {};
  // The noise multiplier of the release: one, of both moments of all columns, over all units. With
  // the default the noise of a training at epsilon 1 grows by a few percent.
  double noise_multiplier = 20;
};

// The release, for EngineOptions::planned_means: the engine's noise is then calibrated for it and
// the steps together. Throws std::invalid_argument for options without a layer or ranges, and for a
// range that is empty or not finite.
PlannedMeans planned_means(const StandardizeOptions& options);

// Releases means and deviations of columns of data.inputs [n, columns, ...] over the engine's units
// and sets them in the layer. The value of a unit with several samples, or of samples with several
// values in a column, is their mean; a unit without samples adds nothing (MeanQuery). Variances, in
// units of half the range, are raised to the noise's standard deviation where they are below it.
// Call it before the first step of an engine whose planned_means announce it; train() does
// (TrainOptions).
//
// Throws std::invalid_argument, without a release, for a column out of range, for a layer or an
// engine of other data, and where Engine::release_means() does.
void standardize(Engine& engine, const Dataset& data, const StandardizeOptions& options);

// The ranges of the inputs that are numbers with a range in the schema, as read_table() encodes
// them; not of those that a public mean and deviation standardise already.
std::map<std::int64_t, StatisticRange> number_ranges(const TableSchema& schema);

}  // namespace sotto
