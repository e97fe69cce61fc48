// Prefetched noise: threads that forward and backward of a small network leave idle draw the next
// release's noise in advance. Prefetching does not change the draws.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/random/rounded_gaussian.h"
#include "core/tensor.h"
#include "core/threads/background_work.h"

namespace sotto {

// The noise of one release, partly prefetched; next() hands it out block by block.
class NoisePrefetch final : private BackgroundTask {
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

  const std::vector<std::int64_t>& counts() const { return counts_; }
  // False in a process that was forked after the construction: its parent has equal draws, so the
  // child must not use them.
  bool ours() const { return SecretRandom::forks() == forks_; }
  // Returns the draws of the next block, of room.size() elements, in `room` or in this object's
  // memory.
  std::span<const std::int64_t> next(std::span<std::int64_t> room);

 private:
  // A group of a block's draws (RoundedGaussian::group_values).
  struct Piece {
    std::int64_t first = 0;
    std::size_t size = 0;
    std::uint64_t block = 0;
  };
  std::int64_t plan();
  bool run_chunk() override { return draw_before(pieces_.size()); }
  bool draw_before(std::size_t end);
  ChaChaStream stream_at(std::uint64_t block) const;
  std::int64_t* draws() const { return static_cast<std::int64_t*>(draws_->data()); }

  std::shared_ptr<const RoundedGaussian> gaussian_;
  std::vector<std::int64_t> counts_;
  std::uint64_t forks_;
  ChaChaStream stream_;
  std::uint64_t next_block_ = 0;  // of the keystream, for the next block of noise
  std::int64_t given_ = 0;        // elements handed out
  std::vector<Piece> pieces_;
  std::vector<std::atomic<bool>> done_;  // one for each piece
  std::size_t given_pieces_ = 0;
  std::atomic<std::size_t> begun_{0};  // pieces begun, in order
  std::optional<Storage> draws_;
};

}  // namespace sotto
