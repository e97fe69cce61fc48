// Bags of rows of a table: looked up and reduced, one bag for each sample.
#pragma once

#include <optional>

#include "nn/module.h"

namespace sotto::nn {

enum class BagMode { sum, mean, max };

struct BagOptions {
  BagMode mode = BagMode::mean;
  // Ids of this value are left out, and not counted by the mean.
  std::optional<std::int64_t> padding = std::nullopt;
};

// Bags of one size: table [rows, d], ids [n, size] i64, weights [n, size] (sum only). An empty bag
// gives zeros. Throws std::invalid_argument for ids outside the table.
Var embedding_bag(const Var& table, const Var& ids,
                  const std::optional<Var>& weights = std::nullopt, const BagOptions& options = {});
// Bags one after the other: bag b is ids[offsets[b]] up to ids[offsets[b + 1]], the last one to the
// end. The sample is the bag, so ids [k] and weights [k] have no sample axis of their own; offsets
// [n]. Throws unless offsets start at 0 and do not fall.
Var embedding_bag(const Var& table, const Tensor& ids, const Tensor& offsets,
                  const std::optional<Var>& weights = std::nullopt, const BagOptions& options = {});

// y[b, :] = the sum, mean or maximum of weight[ids[b, :], :]. Rows start standard normal.
class EmbeddingBag final : public Module {
 public:
  EmbeddingBag(std::int64_t rows, std::int64_t features, const BagOptions& options = {});
  Var forward(const Var& ids) override { return forward(ids, std::nullopt); }
  Var forward(const Var& ids, const std::optional<Var>& weights);
  // The tape is that of the samples, which appear here for the first time, maybe.
  Var forward(Tape& tape, const Tensor& ids, const Tensor& offsets,
              const std::optional<Var>& weights = std::nullopt);
  void visit(const Visitor& visitor) override;

  std::unique_ptr<Parameter> weight;  // [rows, features]

 private:
  BagOptions options_;
};

}  // namespace sotto::nn
