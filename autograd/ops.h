// Every operation on tape values: the headers of autograd/ops.
#pragma once

#include "autograd/ops/conv_pool.h"
#include "autograd/ops/einsum.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/indexing.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/loss/ctc.h"
#include "autograd/ops/loss/element_losses.h"
#include "autograd/ops/loss/losses.h"
#include "autograd/ops/normalization.h"
#include "autograd/ops/reductions.h"
#include "autograd/ops/resampling.h"
#include "autograd/ops/sequence/attention.h"
#include "autograd/ops/sequence/recurrent.h"
#include "autograd/ops/shape_ops.h"
#include "autograd/precision.h"
#include "autograd/segment.h"
