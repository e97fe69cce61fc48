// Every operation on tape values.
#pragma once

#include "sotto/autograd/elementwise.h"
#include "sotto/autograd/images.h"
#include "sotto/autograd/losses.h"
#include "sotto/autograd/products.h"
#include "sotto/autograd/reductions.h"
#include "sotto/autograd/shape_ops.h"
