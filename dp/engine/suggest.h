// First values for the settings that private training is most sensitive to, from published
// practice: where to begin a search, and not its result.
#pragma once

#include "dp/engine/engine.h"

namespace sotto {

struct Suggestion {
  double logical_batch = 0;
  double clip_bound = 0;
  // For nn::Sgd without momentum; with momentum m take (1 - m) times it.
  double learning_rate = 0;
  // What the target epsilon needs with this batch, by Renyi divergences; the engine's own
  // calibration finds somewhat less.
  double noise_multiplier = 0;
};

// For options.target_epsilon, delta and steps, of which nothing but these is read, with Poisson
// batches. With sigma(B) the noise multiplier that batches of B units need and n the population:
//   logical_batch  the smallest power of two B, from 16 on, for which the noise on the mean,
//                  sigma(B) / B, is at most 1.25 sigma(n) / n; or n. Larger ones cost time and
//                  lessen the noise no more (De et al. 2022, section 3; Ponomareva et al. 2023,
//                  section 5.4).
//   clip_bound     1 (De et al. 2022). Smaller ones do as well with a learning rate that is as much
//                  larger: clipped gradients times the rate stay the same (the same).
//   learning_rate  2 / clip_bound (De et al. 2022, B = 4096). Tramer and Boneh 2021 have the same
//                  point: 0.25 B / 512 with momentum 0.9 and clip bound 0.1. Theirs grows with B
//                  where epochs are held fixed, and steps become fewer; here the steps are given.
// Of options, population and nothing else: no data is looked at, so that nothing is spent. Throws
// std::invalid_argument unless there is a target epsilon, steps >= 1 and population >= 1, and as
// calibrate_noise_multiplier().
Suggestion suggest(const EngineOptions& options, std::int64_t population);

}  // namespace sotto
