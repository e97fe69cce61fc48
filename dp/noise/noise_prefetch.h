// Prefetched noise: threads that forward and backward of a small network leave idle draw the next
// release's noise in advance. Prefetching does not change the draws.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace sotto {
class RoundedGaussian;
class SecretRandom;
}  // namespace sotto

namespace sotto {

// The noise of one release, partly prefetched; next() hands it out block by block.
class NoisePrefetch final {
 public:
  // Prepares noise for arrays of counts[k] elements, one array after the other: for each block
  // (noise_block_size) of each array the draws of gaussian.fill(random, ...). The random words for
  // all draws are reserved from `random` now. With several threads, the draws for blocks within the
  // first max_ahead elements are prefetched.
  NoisePrefetch(std::shared_ptr<const RoundedGaussian> gaussian, SecretRandom& random,
                std::vector<std::int64_t> counts);
  // Erases the key.
  ~NoisePrefetch();

  static constexpr std::int64_t max_ahead = std::int64_t{1} << 16;  // 512 KiB

  const std::vector<std::int64_t>& counts() const;
  // False in a process that was forked after the construction: its parent has equal draws, so the
  // child must not use them.
  bool ours() const;
  // Returns the draws of the next block, of room.size() elements, in `room` or in this object's
  // memory.
  std::span<const std::int64_t> next(std::span<std::int64_t> room);

 private:
  class Draws;  // idle threads make them
  std::unique_ptr<Draws> draws_;
};

}  // namespace sotto
