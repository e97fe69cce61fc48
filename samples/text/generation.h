// Text that a language model writes.
#pragma once

#include <string>

#include "samples/text/text_model.h"

namespace sotto::text {

struct GenerateOptions {
  std::string prompt = {};    // begins the text
  std::int64_t length = 400;  // symbols to add
  double temperature = 0.8;   // of the softmax; 0 takes the likeliest symbol
  std::uint64_t seed = 0;     // public randomness
};

// The prompt and what follows: a function of the seed. Where the model ends a unit, the text goes
// on with the next one, after a new line or, unless units are lines, a blank one. A byte that is
// not UTF-8, and a control character, is U+FFFD. Throws std::invalid_argument for numbers out of
// range and a prompt with characters that the vocabulary lacks.
std::string generate_text(Network& network, const TextModel& model, const GenerateOptions& options);

}  // namespace sotto::text
