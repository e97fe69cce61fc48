// Noise that is drawn before it is asked for, by threads that would have nothing to do: forward and
// backward of small networks leave most of them idle. What is drawn, and in which order, is what
// would be drawn later.
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

class NoisePrefetch final : private BackgroundTask {
 public:
  // For arrays of counts[k] elements, one after the other: what gaussian.fill(random, ...) draws
  // for each stretch (noise_grid.h) of each array. The words for all of them are taken from
  // `random` now. Where there are several threads, draws for the stretches that are within the
  // first most_ahead elements are made ahead.
  NoisePrefetch(std::shared_ptr<const RoundedGaussian> gaussian, SecretRandom& random,
                std::vector<std::int64_t> counts);
  // Forgets the words.
  ~NoisePrefetch();

  static constexpr std::int64_t most_ahead = std::int64_t{1} << 16;  // 512 KiB

  const std::vector<std::int64_t>& counts() const { return counts_; }
  // False in a child that was forked off since, whose parent has the same draws: not to be used.
  bool ours() const { return SecretRandom::forks() == forks_; }
  // The draws of the stretch that comes next, of room.size() elements: in `room`, or in memory of
  // its own.
  std::span<const std::int64_t> next(std::span<std::int64_t> room);

 private:
  // A group of a stretch's draws (RoundedGaussian::group_values).
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
  std::uint64_t next_block_ = 0;  // of the stretch that comes next
  std::int64_t given_ = 0;        // elements
  std::vector<Piece> pieces_;
  std::vector<std::atomic<bool>> done_;  // for each piece
  std::size_t given_pieces_ = 0;
  std::atomic<std::size_t> begun_{0};  // pieces, in order
  std::optional<Storage> draws_;
};

}  // namespace sotto
