// Pre-tokenizers of tokenizer.json: pieces of a text are cut into words.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nn/data/tokenizer/document.h"
#include "nn/data/tokenizer/split.h"

namespace sotto {

// The words of a piece.
using PreTokenizer = std::function<std::vector<Piece>(const Piece&)>;

// Throws std::invalid_argument for a type or an option that is not supported.
PreTokenizer make_pre_tokenizer(const Field& pre_tokenizer);

// The character that Metaspace writes for a space.
std::string metaspace_mark(const Field& metaspace);
// Where Metaspace puts its mark in front of a text: "always", "first", "never".
std::string prepend_scheme(const Field& metaspace);

}  // namespace sotto
