// The values of a model's parameters from a file of weights, by a table of names.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "core/io/weights_file.h"
#include "nn/models/names.h"
#include "nn/models/pretrained.h"

namespace sotto::nn {

struct WeightsSource {
  const WeightsFile& file;
  const NamesTable& table;
  std::string prefix;  // of the body in the file
  const nlohmann::json& config;
  const PretrainedOptions& options;
};

// Fills in parameters and statistics, replaces layers by quantised ones where that is asked for,
// and draws missing heads. Throws std::invalid_argument, naming the tensors, where some are
// missing, left over or of another shape; the model is then of no use.
void load_weights(const WeightsSource& source, Module& model, LoadReport& report);

// The rows of each head from neighbouring pairs (2j, 2j + 1) to halves (j, j + e / 2); x [heads e,
// ...] of any type, row-major on the CPU.
Tensor unpaired_rows(const Tensor& x, std::int64_t heads);

// The statistics (statistics.h) of a model by their paths.
std::map<std::string, Tensor*> statistics_of(Module& model);
// Its parameters and statistics.
std::map<std::string, Tensor*> stored_values(Module& model);

}  // namespace sotto::nn
