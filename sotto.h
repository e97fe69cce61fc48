// Everything that a program needs to train a model privately.
#pragma once

#include "autograd/ops.h"
#include "dp/engine/engine.h"
#include "dp/engine/training_checkpoint.h"
#include "dp/noise/correlated/strategy_optimization.h"
#include "dp/sampling/make_sampler.h"
#include "nn/data/dataset.h"
#include "nn/data/digits.h"
#include "nn/layers.h"
#include "nn/module.h"
#include "nn/optim/optimizer.h"
