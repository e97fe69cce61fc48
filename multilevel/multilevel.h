// Multi-level optimisation: problems whose variables are settings of one another.
#pragma once

#include "multilevel/gradient_vectors.h"
#include "multilevel/learned_settings.h"
#include "multilevel/level_options.h"
#include "multilevel/levels.h"
#include "multilevel/lower_problem.h"
#include "multilevel/pass.h"
#include "multilevel/problem.h"
#include "multilevel/responses.h"
