// Clipping: options and bounds, and the clipper for training by hand.
#pragma once

#include "autograd/per_sample/cost_model.h"
#include "autograd/per_sample/grouping.h"
#include "dp/clipping/adaptive_clipping.h"
#include "dp/clipping/clip_groups.h"
#include "dp/clipping/clip_options.h"
#include "dp/clipping/clip_rule.h"
#include "dp/clipping/clip_statistics.h"
#include "dp/clipping/clipped_sum.h"
#include "dp/clipping/clipper.h"
#include "dp/clipping/learned_clip_bound.h"
#include "dp/clipping/sample_values.h"
#include "kernels/host_device/clip_factor.h"
