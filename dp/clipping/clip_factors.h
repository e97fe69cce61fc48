// The factors of a group's gradients, as the files of Clipper share them.
#pragma once

#include "dp/clipping/clipper.h"
#include "dp/clipping/unit_norms.h"

namespace sotto {

struct Clipper::Factors : ClipFactors {
  Tensor weights;  // weights_of() the values, 0 for what is to stay apart
};

}  // namespace sotto
