// Layers over features and ids, flattening and dropout.
#pragma once

#include <optional>

#include "nn/module.h"

namespace sotto::nn {

struct LinearOptions {
  bool bias = true;  // with a bias
};

// y[.., o] = sum_i x[.., i] weight[o, i] + bias[o]. Both are initially uniform in +-1 / sqrt(in).
class Linear final : public Module {
 public:
  // Features of input and output, >= 1.
  Linear(std::int64_t in, std::int64_t out, const LinearOptions& options = {});
  Var forward(const Var& x) override;
  void visit(const Visitor& visitor) override;

  std::unique_ptr<Parameter> weight;  // [o, i]
  std::unique_ptr<Parameter> bias;    // [o], or null
};

struct EmbeddingOptions {
  // A row that starts at zero and is never updated; a negative number counts from the end.
  std::optional<std::int64_t> padding = std::nullopt;
  // PyTorch options that are refused with the reason: scale_grad_by_freq makes a sample's gradient
  // depend on other samples, and max_norm changes rows by data without noise.
  bool scale_grad_by_freq = false;
  std::optional<double> max_norm = std::nullopt;  // unset
};

// y[.., :] = weight[x[..], :] for ids x, i64 of any shape. Rows are initially standard normal.
class Embedding final : public Module {
 public:
  // Size of the table, both >= 1.
  Embedding(std::int64_t rows, std::int64_t features, const EmbeddingOptions& options = {});
  Var forward(const Var& ids) override;
  void visit(const Visitor& visitor) override;
  // The padding row, counted from the start.
  std::optional<std::int64_t> padding() const { return options_.padding; }

  std::unique_ptr<Parameter> weight;  // [rows, features]

 private:
  EmbeddingOptions options_;
};

// Joins axes start .. end, both included.
class Flatten final : public Module {
 public:
  // Axes; negative ones count from the end.
  explicit Flatten(int start = 1, int end = -1) : start_(start), end_(end) {}
  Var forward(const Var& x) override;

 private:
  int start_, end_;
};

// sotto::dropout. Throws std::invalid_argument unless 0 <= rate < 1.
class Dropout final : public Module {
 public:
  // The probability of an element to become 0.
  explicit Dropout(double rate = 0.5);
  Var forward(const Var& x) override;

 private:
  double rate_;
};

// y[.., o] = sum_ij x1[.., i] weight[o, i, j] x2[.., j] + bias[o]; both are initially uniform in
// +-1 / sqrt(in1).
class Bilinear final : public Module {
 public:
  // Features of both inputs and of the output, >= 1.
  Bilinear(std::int64_t in1, std::int64_t in2, std::int64_t out, bool with_bias = true);
  Var forward(const Var& x) override { return forward(x, x); }
  // Both inputs have the same leading axes.
  Var forward(const Var& x1, const Var& x2);
  void visit(const Visitor& visitor) override;

  std::unique_ptr<Parameter> weight;  // [out, in1, in2]
  std::unique_ptr<Parameter> bias;    // [out], or null
};

}  // namespace sotto::nn
