// Normalizers of tokenizer.json: a text becomes another before it is cut into words.
#pragma once

#include <functional>
#include <string>

#include "nn/data/tokenizer/document.h"
#include "nn/data/tokenizer/split.h"

namespace sotto {

// From valid UTF-8 to valid UTF-8.
using Normalizer = std::function<std::string(std::string)>;

// Throws std::invalid_argument for a type or an option that is not supported: Precompiled, Nmt.
Normalizer make_normalizer(const Field& normalizer);

// The pattern {"String": ...} or {"Regex": ...} of a field.
Finder find_by(const Field& pattern);
// {"pattern": ..., "content": ...}: every match replaced by the content.
Normalizer make_replace(const Field& replace);

}  // namespace sotto
