// What an operation of your own needs: its name and properties, its adjoint, the rules of the
// sample axis, and the per-sample gradients of its shared inputs.
#pragma once

#include "autograd/adjoint.h"
#include "autograd/op.h"
#include "autograd/per_sample/norms.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/per_sample/rounded_sum.h"
#include "autograd/sample_axis_rules.h"
