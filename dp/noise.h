// Noise: mechanisms for gradients and statistics, independent or correlated over the steps.
#pragma once

#include "dp/noise/bounded_statistics.h"
#include "dp/noise/correlated/correlated_mechanism.h"
#include "dp/noise/correlated/strategy_matrix.h"
#include "dp/noise/correlated/strategy_optimization.h"
#include "dp/noise/gaussian_mechanism.h"
#include "dp/noise/gaussian_noise.h"
#include "dp/noise/mechanism.h"
#include "dp/noise/statistic_range.h"
