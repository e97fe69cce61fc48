// Text from a language model, token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "nn/models/language_model.h"

namespace sotto::nn {

struct GenerateOptions {
  std::int64_t max_tokens = 64;  // new ones
  // Logits are divided by it before a token is drawn; 0 takes the likeliest token.
  double temperature = 0;
  std::int64_t top_k = 0;  // draws from so many likeliest tokens; 0: from all
  // Draws from the likeliest tokens whose probabilities together reach it (Holtzman et al. 2020);
  // 1: from all.
  double top_p = 1;
  std::uint64_t seed = 0;               // the same seed draws the same tokens
  std::vector<std::int64_t> stop = {};  // tokens that end the text, and are left out
  // Called with each new token; false ends the text. Optional.
  std::function<bool(std::int64_t token)> on_token = {};
};

// The tokens that follow the prompt, until a stop token, max_tokens, or the most tokens that the
// model reads. Dropout is off. Throws std::invalid_argument for an empty prompt, for one longer
// than the model reads, and for options out of range.
std::vector<std::int64_t> generate(LanguageModel& model, std::span<const std::int64_t> prompt,
                                   const GenerateOptions& options = {});

// A token for these logits [vocabulary], f32 or f64; `u` in [0, 1) is the randomness. Of equal
// logits the smaller token comes first.
std::int64_t sample_token(const Tensor& logits, const GenerateOptions& options, double u);

}  // namespace sotto::nn
