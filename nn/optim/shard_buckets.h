// The communication of a step of a divided optimizer (Shards): sums are sent to the owners of their
// elements, and new values come back. Both are sent in buckets, while other work goes on.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "nn/optim/shards.h"

namespace sotto::nn {

// Bucket size in elements. A larger parameter gets its own bucket.
inline constexpr std::int64_t bucket_elements = std::int64_t{1} << 20;

// Splits parameters into buckets, in the order of each bucket's last.
std::vector<std::vector<Parameter*>> in_buckets(std::span<Parameter* const> parameters);

// The f64 sums of one batch. A bucket leaves when this rank has its last sum and the buckets before
// it have left, so that all ranks send in one order. At most two buckets are under way.
class SumsToOwners {
 public:
  // Every rank passes equal parameters in one order: the order in which their sums are likely to be
  // complete.
  SumsToOwners(std::shared_ptr<const Shards> shards, std::span<Parameter* const> parameters);
  SumsToOwners(const SumsToOwners&) = delete;
  SumsToOwners& operator=(const SumsToOwners&) = delete;
  ~SumsToOwners();
  // Gives this rank's sum, of the parameter's shape, which is kept until it was sent.
  void give(Parameter& parameter, const Tensor& sum);
  // Whether the parameter's sum was given.
  bool has(const Parameter& parameter) const;
  // Whether any sum was given.
  bool any() const { return !given_.empty(); }
  // Returns the sums over all ranks, added in the order of ranks, of the elements that this rank
  // owns: [elements] for each parameter of `order`. Call it when all sums were given.
  Gradients totals(const std::vector<Parameter*>& order);

 private:
  struct Bucket;
  void begin_full_buckets();
  void end_next();

  std::shared_ptr<const Shards> shards_;
  std::vector<std::unique_ptr<Bucket>> buckets_;
  std::size_t begun_ = 0, ended_ = 0;  // buckets
  std::unordered_map<const Parameter*, Bucket*> bucket_of_;
  std::unordered_map<const Parameter*, Tensor> totals_;
  std::unordered_set<const Parameter*> given_;
};

// The values of the parameters after an update that each rank made of the elements that it owns.
class ValuesFromOwners {
 public:
  // All ranks make one from the same parameters in the same order: that of the updates.
  ValuesFromOwners(const Shards& shards, std::span<Parameter* const> parameters);
  ValuesFromOwners(const ValuesFromOwners&) = delete;
  ValuesFromOwners& operator=(const ValuesFromOwners&) = delete;
  ~ValuesFromOwners();
  // Says that this rank has updated its elements of the parameter.
  void updated(const Parameter& parameter);
  // Returns when every rank has all owners' values.
  void wait();

 private:
  struct Bucket;
  void begin_full_buckets(bool all);

  const Shards& shards_;
  std::vector<std::unique_ptr<Bucket>> buckets_;
  std::size_t begun_ = 0;  // buckets
  std::unordered_map<const Parameter*, Bucket*> bucket_of_;
};

}  // namespace sotto::nn
