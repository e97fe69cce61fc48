// The build without oneDNN: the portable loops compute everything.
#include "kernels/cpu/cpu_backend.h"

namespace sotto {

Backend* onednn_backend() { return nullptr; }

}  // namespace sotto
