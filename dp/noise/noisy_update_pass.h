// Noise, division and the optimizer's update in one pass over the parameters: each block of a
// gradient is updated while it is in the cache, and on a GPU the sums never leave it.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "core/random/rounded_gaussian.h"
#include "core/random/secret_random.h"
#include "dp/clipping/clipped_sum_content.h"
#include "dp/noise/noise_grid.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/shard_buckets.h"

namespace sotto {

// The place of an element in a release.
struct NoisePlace {
  std::int64_t first = 0;   // counted over all elements that are released here
  std::uint64_t block = 0;  // of the release's keystream (NoisyUpdate::noise_blocks)
};

// Draws noise, in spacings, for the room.size() elements from `place` on, which belong to one
// parameter. Returns the draws, in `room` or in other memory.
using WholeNoise =
    std::function<std::span<const std::int64_t>(NoisePlace place, std::span<std::int64_t> room)>;

// The source of noise on a GPU: the keystream that the CPU would draw from.
struct GpuNoise {
  const RoundedGaussian& gaussian;
  SecretRandom& random;
  // The number of draws in memory at once: 128 MiB, whose undecided ones give each processor of a
  // large GPU sixteen warps. A multiple of RoundedGaussian::group_values.
  std::int64_t max_draws = std::int64_t{1} << 24;
};

// Adds noise to the sums of one release, divides them, and makes the optimizer's step. Mechanism
// makes one for each release.
class NoisyUpdate {
 public:
  // `released` are the result tensors, with the sums' shapes and devices; they may be the sums. If
  // they are f32, the sums are f32 or f64. One that is undefined is not kept: on_cpu() drops it
  // after the step. `shards`: the sums are those of the elements that this rank owns; null: of all.
  // Sums and shards must outlive this object.
  NoisyUpdate(const Gradients& sums, Gradients released, double divisor,
              const nn::Shards* shards = nullptr)
      : sums_(sums), released_(std::move(released)), divisor_(divisor), shards_(shards) {}
  NoisyUpdate(const NoisyUpdate&) = delete;
  NoisyUpdate& operator=(const NoisyUpdate&) = delete;

  // Reads sums that are undefined from here, during on_cpu(), which gives up each once it is read.
  // Must outlive this object.
  void read_deferred(DeferredSums& deferred) { deferred_ = &deferred; }

  // Also makes the optimizer's step during the pass. Checks and throws as Optimizer::Step does,
  // before any parameter changes.
  void make_step(nn::Optimizer& optimizer, double noise_variance);

  // Also reports each updated parameter to `values`, which must outlive this object.
  void send_values(nn::ValuesFromOwners& values) { values_ = &values; }

  // True if other ranks release other elements.
  bool divided() const { return shards_ != nullptr; }
  // The number of elements of the k-th parameter that are released here.
  std::int64_t own_size(std::size_t k) const;
  // The number of elements of the k-th parameter, and of all, on all ranks.
  std::int64_t whole_size(std::size_t k) const;
  std::int64_t elements() const;
  // The blocks of keystream for all of them. Each parameter begins with a block of its own, and
  // the place of an element does not depend on the ranks: generators with equal keys never use a
  // word twice.
  std::uint64_t noise_blocks() const;

  // Rounds every element to the nearest multiple of the spacing, adds noise, and divides. Noise is
  // drawn for every element once, in order. An infinite sum counts as the largest finite one.
  // Throws std::invalid_argument for a sum that is NaN.
  void on_cpu(const NoiseGrid& grid, const WholeNoise& draw);
  // on_cpu() for sums on one GPU, with bitwise equal results, in three launches per max_draws
  // elements, whatever the number of parameters (on several ranks three more for each). The host
  // waits once, at the end, to learn whether all numbers were finite. The device gets the key as a
  // kernel argument only, but holds the draws in memory meanwhile. Throws std::invalid_argument at
  // the end for a sum that is NaN, and for a step with a gradient that noise made infinite; only
  // those elements are not updated.
  void on_gpu(const NoiseGrid& grid, const GpuNoise& noise);
  // True if all sums are on one GPU.
  bool on_one_gpu() const;

  // For noise without a grid: the mechanism itself writes the released gradients, and calls
  // finished() after each.
  const Gradients& sums() const { return sums_; }
  const Gradients& released() const { return released_; }
  double divisor() const { return divisor_; }
  // Makes the update of the k-th gradient, which was written.
  void finished(std::size_t k);

 private:
  // Draws noise for `count` elements of a parameter from the element `at` on.
  using PartNoise =
      std::function<std::span<const std::int64_t>(std::int64_t at, std::int64_t count)>;
  void one_on_cpu(std::size_t k, const NoiseGrid& grid, const PartNoise& noise);
  void drop_on_cpu(std::size_t k, const NoiseGrid& grid, const PartNoise& noise);
  void finished(const Parameter* parameter, const Tensor& flat, std::int64_t first,
                std::int64_t end, bool finite);
  std::optional<UpdateArray> update_in_place(std::size_t k, const Tensor& flat);
  std::uint64_t first_block(const Parameter* parameter) const;

  const Gradients& sums_;
  Gradients released_;
  double divisor_;
  const nn::Shards* shards_;
  DeferredSums* deferred_ = nullptr;
  std::optional<nn::Optimizer::Step> step_;
  nn::ValuesFromOwners* values_ = nullptr;
};

}  // namespace sotto
