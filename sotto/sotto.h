// Everything that a program needs to train a model privately.
#pragma once

#include "sotto/autograd/ops.h"
#include "sotto/dp/checkpoint.h"
#include "sotto/dp/engine.h"
#include "sotto/dp/make_sampler.h"
#include "sotto/dp/noise_search.h"
#include "sotto/nn/dataset.h"
#include "sotto/nn/digits.h"
#include "sotto/nn/layers.h"
#include "sotto/nn/module.h"
#include "sotto/nn/optimizer.h"
