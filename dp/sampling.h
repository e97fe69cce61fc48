// Sampling of batches.
#pragma once

#include "dp/sampling/make_sampler.h"
#include "dp/sampling/sampler.h"
