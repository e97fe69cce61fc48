// Ranks: the processes of a distributed run, their threads and GPUs, and their failures.
#pragma once

#include "core/ranks/launched_ranks.h"
#include "core/ranks/one_rank.h"
#include "core/ranks/rank_failure.h"
#include "core/ranks/rank_limits.h"
#include "core/ranks/rank_threads.h"
#include "core/ranks/ranks.h"
#include "core/ranks/thread_ranks.h"
