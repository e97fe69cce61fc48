// Initial values for the settings that private training is most sensitive to, from published
// practice: the start of a search, not its result.
#pragma once

#include <cstdint>

#include "dp/engine/engine_options.h"

namespace sotto {

// Settings to begin a search with.
struct Suggestion {
  double logical_batch = 0;  // expected number of units in a batch
  double clip_bound = 0;     // C
  // For nn::Sgd without momentum; with momentum m multiply it by 1 - m.
  double learning_rate = 0;
  // The noise multiplier that the target epsilon needs with this batch, by Renyi accounting. The
  // engine's own calibration finds a slightly smaller one.
  double noise_multiplier = 0;
};

// Returns a suggestion for Poisson batches. Of the options only target_epsilon, delta and steps are
// read. No data is looked at, so that no privacy is spent. With sigma(B) the noise multiplier that
// batches of B units need, and n the population:
//   logical_batch  the smallest power of two B, from 16 on, for which the noise on the mean,
//                  sigma(B) / B, is at most 1.25 sigma(n) / n; or n. Larger batches cost time and
//                  hardly reduce the noise (De et al. 2022; Ponomareva et al. 2023).
//   clip_bound     1 (De et al. 2022). A smaller bound works as well with a learning rate larger by
//                  that factor: the clipped gradient times the rate does not change.
//   learning_rate  2 / clip_bound (De et al. 2022, B = 4096). Tramer and Boneh 2021 agree at that
//                  point: 0.25 B / 512 with momentum 0.9 and clip bound 0.1. Their rate grows with
//                  B because they fix the number of epochs; here the number of steps is fixed.
// Throws std::invalid_argument unless there is a target epsilon, steps >= 1 and population >= 1,
// and where calibrate_noise_multiplier() does.
Suggestion suggest(const EngineOptions& options, std::int64_t population);

}  // namespace sotto
