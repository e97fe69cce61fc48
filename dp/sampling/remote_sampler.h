// The sampler of a rank that does not draw: it returns what rank 0 drew.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "dp/sampling/sampler.h"

namespace sotto {

class RemoteSampler final : public Sampler {
 public:
  // Makes batches of the same kind as `like`, which is rank 0's sampler but for its randomness.
  explicit RemoteSampler(std::unique_ptr<const Sampler> like)
      : Sampler(like->population(), like->event()), like_(std::move(like)) {}

  // Sets this rank's units of the next draw, the digest of all of them, and the position at which
  // rank 0 drew them.
  void receive(std::int64_t index_in_epoch, std::uint64_t epoch_began, std::uint64_t number,
               std::vector<std::int64_t> own, const UnitDigest& all);
  double expected_batch_size() const override { return like_->expected_batch_size(); }
  std::int64_t min_separation() const override { return like_->min_separation(); }

 protected:
  std::vector<std::int64_t> sample(std::int64_t /*index_in_epoch*/) override {
    return std::exchange(own_, {});
  }
  std::optional<UnitDigest> whole_digest() const override { return all_; }
  bool secure() const override { return true; }  // as rank 0's, which the engine makes

 private:
  std::unique_ptr<const Sampler> like_;
  std::vector<std::int64_t> own_;
  UnitDigest all_;
};

}  // namespace sotto
