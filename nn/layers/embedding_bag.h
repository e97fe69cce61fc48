// Bags of ids: rows of a table are looked up and reduced, one bag for each sample.
#pragma once

#include <optional>

#include "nn/module.h"

namespace sotto::nn {

enum class BagMode { sum, mean, max };

struct BagOptions {
  BagMode mode = BagMode::mean;  // the reduction
  // This row of the table is left out, and not counted by the mean; a negative number counts from
  // the end. Ids name rows from the start.
  std::optional<std::int64_t> padding = std::nullopt;
};

// Reduces bags of one size: table [rows, d], ids [n, size] i64, weights [n, size] (sum only);
// returns [n, d]. An empty bag gives zeros. Throws std::invalid_argument for ids and a padding
// outside the table.
Var embedding_bag(const Var& table, const Var& ids,
                  const std::optional<Var>& weights = std::nullopt, const BagOptions& options = {});
// Reduces bags of different sizes: bag b holds ids[offsets[b]] up to ids[offsets[b + 1] - 1], the
// last bag up to the end. Each bag is a sample, so ids [k] and weights [k] have no sample axis;
// offsets [n]. All bags are padded to the longest one of the batch, so its length affects the speed
// and the order of sums of every bag (docs/how-to/sharp-edges.md). Use bags of one public size if
// that must not show. Throws std::invalid_argument unless offsets start at 0 and never decrease.
Var embedding_bag(const Var& table, const Tensor& ids, const Tensor& offsets,
                  const std::optional<Var>& weights = std::nullopt, const BagOptions& options = {});

// y[b, :] = the sum, mean or maximum of weight[ids[b, :], :]. Rows are initially standard normal.
class EmbeddingBag final : public Module {
 public:
  EmbeddingBag(std::int64_t rows, std::int64_t features, const BagOptions& options = {});
  Var forward(const Var& ids) override { return forward(ids, std::nullopt); }
  // Bags of one size: ids [n, size]; weights [n, size] for sums only.
  Var forward(const Var& ids, const std::optional<Var>& weights);
  // `tape` is needed because ids and offsets, tensors without a tape, may be the model's first
  // inputs.
  Var forward(Tape& tape, const Tensor& ids, const Tensor& offsets,
              const std::optional<Var>& weights = std::nullopt);
  void visit(const Visitor& visitor) override;

  std::unique_ptr<Parameter> weight;  // [rows, features]

 private:
  BagOptions options_;
};

}  // namespace sotto::nn
