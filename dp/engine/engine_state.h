// The state of an engine, as a training checkpoint stores it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/io/safetensors.h"
#include "core/tensor.h"
#include "dp/engine/run_facts.h"
#include "dp/sampling/sampler.h"

namespace sotto {

struct EngineState {
  std::string ledger, run;  // their ids
  std::int64_t steps_made = 0;
  double noise_multiplier = 0;  // the initial one
  std::vector<double> bounds;   // of the clip groups
  struct Scale {
    double value = 1;
    std::int64_t good_steps = 0;
  };
  Scale loss_scale;
  std::int64_t means_released = 0;  // calls of release_means()
  // option_facts() with optimizer_facts(), and data_facts().
  std::vector<Fact> facts, data;
  SamplerState sampler;
  std::map<std::string, Tensor> mechanism;  // Mechanism::state()
};

// Returns a file that is marked as secret (secret_key).
TensorFile to_file(const EngineState& state);
// Throws std::invalid_argument for a file without an engine's state.
EngineState engine_state(const TensorFile& file);

}  // namespace sotto
