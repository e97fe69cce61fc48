// Built without oneDNN: Eigen does everything.
#include "sotto/kernels/cpu/cpu_backend.h"

namespace sotto {

Backend* onednn_backend() { return nullptr; }

}  // namespace sotto
