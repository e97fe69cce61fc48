// The commands of `text` besides `train`.
#pragma once

namespace sotto::text {

// Each parses its arguments, of which the first is its name, and returns the exit status.
int evaluate(int argc, const char* const* argv);
int predict(int argc, const char* const* argv);
int generate(int argc, const char* const* argv);
int write_sentences(int argc, const char* const* argv);

}  // namespace sotto::text
