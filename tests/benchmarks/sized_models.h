// Networks of any width, depth and length, by name, to measure how time and memory grow; and
// networks of the sizes in papers, for GPUs.
#pragma once

#include <string>

#include "samples/models/registry.h"

namespace sotto::models {

// For help texts.
inline constexpr const char* sized_names =
    "perceptron:WIDTHxDEPTH, so many linear layers of so many features with ReLU, then one to 10 "
    "classes; or "
    "transformer:LENGTH, an encoder block of width 64 over so many words; or "
    "encoder:LENGTH, as large as all-MiniLM-L6-v2, for --tune; or, as large as GPUs train them, "
    "gpt2-small over 512 tokens, gpt2-256 and gpt2-1024, vit-b16 and resnet50-224 for 224x224 "
    "images, efficientnet-lite0 and efficientnet-lite0-frozen for 128x128; or the same kinds for "
    "tests, gpt2-tiny, vit-tiny and resnet-tiny";

// The entry of a sized name, whose text it refers to, or of a name in the registry. Throws
// std::invalid_argument if the name is neither, or a size is not an integer from 1 to 2^20.
Entry entry_of_any(const std::string& name);

// Trains the parts of a pretrained model that the text names (nn/models/tuning.h); nothing changes
// for an empty one. Throws std::invalid_argument for a model whose parts are not named.
void tune(nn::Module& model, const std::string& tuning);

// Random samples [n, ...input] and their labels, which repeat once 2^22 numbers are drawn: more of
// large images take longer to draw than their step to time.
Examples examples_for_timing(const Entry& entry, std::int64_t n, std::uint64_t seed = 0);

}  // namespace sotto::models
