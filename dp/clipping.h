// Clipping: options and bounds, and the clipper for training by hand.
#pragma once

#include "dp/clipping/adaptive_clipping.h"
#include "dp/clipping/clip_groups.h"
#include "dp/clipping/clip_options.h"
#include "dp/clipping/clip_rule.h"
#include "dp/clipping/clip_statistics.h"
#include "dp/clipping/clipped_sum.h"
#include "dp/clipping/learned_clip_bound.h"
#include "dp/clipping/sample_values.h"
#include "dp/clipping/sum_blocks.h"
