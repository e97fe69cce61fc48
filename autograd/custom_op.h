// The room of your own operations: names and properties, adjoints, the rules of the sample axis,
// and per-sample gradients of shared inputs.
#pragma once

#include "autograd/adjoint.h"
#include "autograd/op.h"
#include "autograd/per_sample/norms.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/per_sample/rounded_sum.h"
#include "autograd/sample_axis_rules.h"
