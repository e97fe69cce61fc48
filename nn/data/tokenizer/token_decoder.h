// Decoders of tokenizer.json: tokens become a text.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nn/data/tokenizer/document.h"

namespace sotto {

// The tokens, changed; after the last decoder they are joined without spaces.
using Decoder = std::function<std::vector<std::string>(std::vector<std::string>)>;

// Throws std::invalid_argument for a type or an option that is not supported: CTC.
Decoder make_decoder(const Field& decoder);

}  // namespace sotto
