// Multi-level optimisation: problems whose variables are settings of one another.
#pragma once

#include "multilevel/gradient_vectors.h"
#include "multilevel/learned_settings.h"
#include "multilevel/level.h"
#include "multilevel/level_graph.h"
#include "multilevel/levels.h"
#include "multilevel/pass.h"
#include "multilevel/problem.h"
#include "multilevel/responses.h"
