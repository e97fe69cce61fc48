// The commands of `tabular` besides `train`.
#pragma once

namespace sotto::tabular {

// Each parses its arguments, of which the first is its name, and returns the exit status.
int evaluate(int argc, const char* const* argv);
int predict(int argc, const char* const* argv);
int schema(int argc, const char* const* argv);
int people(int argc, const char* const* argv);

}  // namespace sotto::tabular
