// Small models of texts and images for tests, and the oracle of their gradients.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "autograd/ops.h"
#include "autograd/sink.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/models/architecture.h"
#include "tests/support/catch.h"

namespace sotto {

// The per-sample gradients of all parameters, by name, [n, ...] in f64.
using SampleGradients = std::map<std::string, std::vector<double>>;
// The loss [n] of the rows [begin, end) of a batch.
using LossOfRows = std::function<Var(Tape& tape, std::int64_t begin, std::int64_t end)>;

inline SampleGradients gradients_of_rows(nn::Module& model, const LossOfRows& loss,
                                         std::int64_t begin, std::int64_t end) {
  Tape tape({.training = false});
  PerSampleGradSink sink;
  tape.backward(loss(tape, begin, end), sink);
  SampleGradients all;
  for (const auto& [name, parameter] : model.named_parameters()) {
    for (const auto& [owner, rows] : sink.all()) {
      if (owner == parameter) all[name] = to_dtype(rows, Dtype::f64).to_vector<double>();
    }
  }
  return all;
}

// Checks that each row of a batch has the gradient of that row alone. The model must be f64.
inline void check_rows_alone(nn::Module& model, const LossOfRows& loss, std::int64_t rows) {
  const SampleGradients together = gradients_of_rows(model, loss, 0, rows);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (const auto& [name, alone] : gradients_of_rows(model, loss, row, row + 1)) {
      INFO(name << " of row " << row);
      const std::vector<double>& all = together.at(name);
      double error = 0;
      for (std::size_t i = 0; i < alone.size(); ++i) {
        const double wanted = all[static_cast<std::size_t>(row) * alone.size() + i];
        error = std::max(error, std::abs(alone[i] - wanted));
      }
      CHECK(error < 1e-12);
    }
  }
}

inline std::vector<double> values_of(const Var& x) {
  return to_dtype(x.value(), Dtype::f64).to_vector<double>();
}

}  // namespace sotto
