// The commands of `images` besides `train`.
#pragma once

namespace sotto::images {

// Each parses its arguments, of which the first is its name, and returns the exit status.
int evaluate(int argc, const char* const* argv);
int predict(int argc, const char* const* argv);
int shapes(int argc, const char* const* argv);

}  // namespace sotto::images
