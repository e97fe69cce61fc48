#include "dp/noise/noise_prefetch.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include <string.h>

#include "core/random/rounded_gaussian.h"
#include "core/random/secret_random.h"
#include "core/tensor.h"
#include "core/threads/background_work.h"
#include "core/threads/parallel.h"
#include "dp/noise/noise_grid.h"

namespace sotto {

namespace {

// Calls f(elements) for each block of each array, until it returns false.
template <class F>
void for_each_noise_block(const std::vector<std::int64_t>& counts, F&& f) {
  for (const std::int64_t count : counts) {
    for (std::int64_t at = 0; at < count; at += noise_block_size) {
      if (!f(std::min(noise_block_size, count - at))) return;
    }
  }
}

std::uint64_t blocks_of(std::int64_t elements) {
  return RoundedGaussian::blocks_for(static_cast<std::size_t>(elements));
}

std::uint64_t blocks_of(const std::vector<std::int64_t>& counts) {
  std::uint64_t blocks = 0;
  for_each_noise_block(counts, [&](std::int64_t elements) {
    blocks += blocks_of(elements);
    return true;
  });
  return blocks;
}

}  // namespace

class NoisePrefetch::Draws final : private BackgroundTask {
 public:
  Draws(std::shared_ptr<const RoundedGaussian> gaussian, SecretRandom& random,
        std::vector<std::int64_t> counts);
  ~Draws();

  const std::vector<std::int64_t>& counts() const { return counts_; }
  std::uint64_t forks() const { return forks_; }
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

NoisePrefetch::Draws::Draws(std::shared_ptr<const RoundedGaussian> gaussian, SecretRandom& random,
                            std::vector<std::int64_t> counts)
    : gaussian_(std::move(gaussian)),
      counts_(std::move(counts)),
      forks_(SecretRandom::forks()),
      stream_(random.reserve(blocks_of(counts_))) {
  // The keystream does not depend on the number of threads. With one thread none is idle, so no
  // noise is prefetched.
  if (thread_count() == 1) return;
  draws_.emplace(static_cast<std::size_t>(plan()) * sizeof(std::int64_t), cpu);
  offer_background_work(*this);
}

NoisePrefetch::Draws::~Draws() {
  withdraw_background_work(*this);
  explicit_bzero(&stream_, sizeof stream_);
}

// Divides the blocks to prefetch into pieces; returns their number of elements.
std::int64_t NoisePrefetch::Draws::plan() {
  constexpr auto group = static_cast<std::int64_t>(RoundedGaussian::group_values);
  std::int64_t first = 0;
  std::uint64_t block = 0;
  for_each_noise_block(counts_, [&](std::int64_t elements) {
    if (first + elements > max_ahead) return false;
    for (std::int64_t at = 0; at < elements; at += group) {
      const auto groups_before = static_cast<std::uint64_t>(at / group);
      pieces_.push_back({first + at, static_cast<std::size_t>(std::min(group, elements - at)),
                         block + RoundedGaussian::group_blocks * groups_before});
    }
    first += elements;
    block += blocks_of(elements);
    return true;
  });
  done_ = std::vector<std::atomic<bool>>(pieces_.size());
  return first;
}

ChaChaStream NoisePrefetch::Draws::stream_at(std::uint64_t block) const {
  ChaChaStream here = stream_;
  here.block += block;
  return here;
}

// Draws the first piece before `end` that no thread has begun, if there is one.
bool NoisePrefetch::Draws::draw_before(std::size_t end) {
  std::size_t k = begun_.load(std::memory_order_relaxed);
  do {
    if (k >= end) return false;
  } while (!begun_.compare_exchange_weak(k, k + 1, std::memory_order_relaxed));
  const Piece& piece = pieces_[k];
  gaussian_->fill(stream_at(piece.block), {draws() + piece.first, piece.size});
  done_[k].store(true, std::memory_order_release);
  return true;
}

std::span<const std::int64_t> NoisePrefetch::Draws::next(std::span<std::int64_t> room) {
  const std::int64_t first = given_;
  const std::uint64_t block = next_block_;
  given_ += std::ssize(room);
  next_block_ += blocks_of(std::ssize(room));
  const std::size_t begin = given_pieces_;
  while (given_pieces_ < pieces_.size() && pieces_[given_pieces_].first < given_) ++given_pieces_;
  if (begin == given_pieces_) {
    gaussian_->fill(stream_at(block), room);
    return room;
  }
  parallel_for(static_cast<std::int64_t>(given_pieces_ - begin), 2,
               [&](std::int64_t from, std::int64_t to) {
                 while (from++ < to && draw_before(given_pieces_)) {
                 }
               });
  // Other threads may still be drawing some pieces.
  for (std::size_t k = begin; k < given_pieces_; ++k) {
    while (!done_[k].load(std::memory_order_acquire)) std::this_thread::yield();
  }
  return {draws() + first, room.size()};
}

NoisePrefetch::NoisePrefetch(std::shared_ptr<const RoundedGaussian> gaussian, SecretRandom& random,
                             std::vector<std::int64_t> counts)
    : draws_(std::make_unique<Draws>(std::move(gaussian), random, std::move(counts))) {}
NoisePrefetch::~NoisePrefetch() = default;

const std::vector<std::int64_t>& NoisePrefetch::counts() const { return draws_->counts(); }
bool NoisePrefetch::ours() const { return SecretRandom::forks() == draws_->forks(); }
std::span<const std::int64_t> NoisePrefetch::next(std::span<std::int64_t> room) {
  return draws_->next(room);
}

}  // namespace sotto
