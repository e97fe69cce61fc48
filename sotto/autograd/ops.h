// Every operation on tape values.
#pragma once

#include "sotto/autograd/attention.h"
#include "sotto/autograd/ctc.h"
#include "sotto/autograd/einsum.h"
#include "sotto/autograd/element_losses.h"
#include "sotto/autograd/elementwise.h"
#include "sotto/autograd/images.h"
#include "sotto/autograd/indexing.h"
#include "sotto/autograd/losses.h"
#include "sotto/autograd/precision.h"
#include "sotto/autograd/products.h"
#include "sotto/autograd/recurrent.h"
#include "sotto/autograd/reductions.h"
#include "sotto/autograd/resampling.h"
#include "sotto/autograd/segment.h"
#include "sotto/autograd/shape_ops.h"
