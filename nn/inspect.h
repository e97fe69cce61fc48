// Models in words: what they are made of and how large it is.
#pragma once

#include <string>

#include "nn/layers/norm_layers.h"
#include "nn/module.h"

namespace sotto::nn {

// The class without namespaces: "Linear", "Conv<2>".
std::string kind_of(const Module& module);

// One line for each module, indented by depth: its name, kind, parameters' shapes and their number,
// with "frozen" where nothing of it is trained. The last line has the totals.
std::string to_string(Module& module);

// A table with a line for each module, indented by depth, after a run on `input` (samples first,
// for ids i64): the shape of its last result, the bytes that all its results take, and its
// parameters' number and bytes. Modules that are not called through operator() have no shape. The
// last line adds the results of the modules without children.
std::string summary(Module& model, const Tensor& input);

// Group normalisation in the place of a batch normalisation of as many channels, with its scale and
// shift: what converts a model that mixes samples into one that can be trained privately. Its
// statistics are not transferred, so some training has to follow. weight and bias [c].
GroupNorm group_norm_for_batch_norm(const Tensor& weight, const Tensor& bias, std::int64_t groups);

}  // namespace sotto::nn
