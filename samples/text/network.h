// Networks that read text, symbol by symbol.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/data/dataset.h"
#include "nn/module_of.h"

namespace sotto::text {

struct TextNetworkOptions {
  std::string model = "gru";    // of network_names()
  std::int64_t embedding = 32;  // numbers that stand for a symbol (gru, lstm)
  std::int64_t hidden = 64;     // units of a layer; the transformer's width
  std::int64_t layers = 1;
  std::int64_t heads = 4;      // of attention (transformer)
  bool bidirectional = false;  // reads backwards as well (gru, lstm)
};

// The problem's sizes. With `each_position`, outputs are [n, context, outputs], and those at a
// position depend on the symbols up to it; otherwise they are [n, outputs].
struct NetworkSizes {
  std::int64_t symbols = 0;  // of the vocabulary
  std::int64_t context = 0;  // maximum symbols of a row
  std::int64_t outputs = 0;
  bool each_position = false;
};

// "gru" and "lstm": recurrent layers; a row's outputs follow from the state after its last symbol.
// "transformer": causal blocks with normalisation first (Vaswani et al. 2017) and learned
// positions; a row's outputs follow from the mean over its symbols. "trigram": counts (trigram.h).
std::vector<std::string> network_names();

// A model of symbols' numbers [n, t] and the rows' lengths [n]. Padding has no effect on what
// counts: neither on a row's outputs nor on those at its own positions.
using Network = nn::ModuleOf<Tensor>;

// The model's result for the rows, whose lengths are a field.
Var forward_rows(Network& network, Tape& tape, const Dataset& rows);

// Throws std::invalid_argument for numbers out of range.
std::unique_ptr<Network> make_network(const TextNetworkOptions& options, const NetworkSizes& sizes);

}  // namespace sotto::text
