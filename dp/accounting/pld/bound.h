// The sides of the truth that a computed number can be on.
#pragma once

namespace sotto {

// An upper bound is never below the true number, and a lower bound never above it.
enum class Bound { upper, lower };

}  // namespace sotto
