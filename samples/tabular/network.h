// Networks for the rows of a table.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dp/engine/standardize.h"
#include "nn/data/dataset.h"
#include "nn/data/tables/table_schema.h"
#include "nn/module_of.h"

namespace sotto::tabular {

struct TableNetworkOptions {
  std::string model = "mlp";   // of network_names()
  std::int64_t hidden = 64;    // units of a hidden layer
  std::int64_t layers = 1;     // hidden layers
  std::int64_t embedding = 8;  // numbers that stand for a category
  std::int64_t pieces = 1;     // inputs that a number becomes
  bool no_bias = false;        // of the last layer
  // The first layer standardises the numbers that have a range, by means and deviations that are
  // released for it.
  bool standardize = false;
};

// With p pieces, a number z in [0, 1], the place in the range or between three deviations below and
// above the mean, becomes the inputs clamp(p z - k, 0, 1), k = 0 .. p - 1, so
// that a linear layer is a piecewise linear function of it (Gorishniy et al. 2022).
//
// "logistic": one linear layer. "mlp": a multilayer perceptron with tanh. "embedding": a multilayer
// perceptron on numbers, and for each category a vector that is learned.
std::vector<std::string> network_names();

// A model of rows: of the inputs, and of the indices of the categories where reads_indices() is
// true. The result is [n, classes], or [n, 1] for a label that is a number.
using Network = nn::ModuleOf<Tensor>;

// The model's result for the rows.
Var forward_rows(Network& network, Tape& tape, const Dataset& rows);

// Throws std::invalid_argument for numbers out of range.
std::unique_ptr<Network> make_network(const TableNetworkOptions& options,
                                      const TableSchema& schema);
// The layer for TableNetworkOptions::standardize, and the ranges of its columns; no layer without
// it.
StandardizeOptions standardize_options(nn::Module& network, const TableNetworkOptions& options,
                                       const TableSchema& schema);
// Sets a "logistic" network of one piece to the classifier by the nearest mean: the logits
// s (m_k . x - |m_k|^2 / 2) less their mean over the classes k, m_k the mean of the public rows of
// class k and s the scale. Throws std::invalid_argument for a class without rows.
void start_at_prototypes(Network& network, const Dataset& rows, double scale,
                         const TableSchema& schema);
// True if the network reads TableOptions::category_indices.
bool reads_indices(const TableNetworkOptions& options);

}  // namespace sotto::tabular
