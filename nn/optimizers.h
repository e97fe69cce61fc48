// Optimizers, their rules, schedules, and the moving average of weights.
#pragma once

#include "nn/optim/moving_average.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/schedule.h"
#include "nn/optim/update_rules.h"
