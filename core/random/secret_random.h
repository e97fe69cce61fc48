// Secret randomness: noise and batch sampling, on whose unpredictability privacy rests. A ChaCha20
// keystream keyed by the operating system; the device that expands it does not matter.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "core/random/chacha20.h"

namespace sotto {

// A generator that never gives the same words twice. It moves but does not copy, and converts
// neither to nor from PublicRandom. After fork() a child takes a new key from the operating system
// before its first draw; a seeded generator throws in the child instead. Not for use by two threads
// at once.
class SecretRandom {
 public:
  // Keyed by the operating system. Throws SystemFailure when it gives no key.
  SecretRandom();
  // The same words for the same seed: for tests only, never private.
  static SecretRandom insecure_seeded(std::uint64_t seed);
  // Forgets the key, as does a generator that was moved from; that one throws when used.
  ~SecretRandom();
  SecretRandom(SecretRandom&& other) noexcept;
  SecretRandom& operator=(SecretRandom&& other) noexcept;

  // Keyed by the operating system, not by a seed.
  bool secure() const { return secure_; }

  // How often this process was forked off since the first call or generator: what was drawn before
  // the last time is another process's, too.
  static std::uint64_t forks();

  // All bits independent and uniform. Throws std::invalid_argument when the generator is used up
  // (2^62 blocks), was moved from, or is seeded and on the child's side of a fork().
  std::uint64_t word();
  // In [0, 1), with 53 bits.
  double uniform();
  // Every integer in [0, n) with the same probability. Throws when n < 1.
  std::int64_t below(std::int64_t n);
  // Bytes of fresh blocks, in parallel; the rest of the last block is never used. Independent of
  // the number of threads.
  void fill(std::span<std::uint8_t> out);
  void fill(std::span<std::uint32_t> out);
  void fill(std::span<std::uint64_t> out);

  // Blocks that are the caller's alone, for a device that expands the keystream itself: the first
  // `blocks` blocks of what is returned, which holds the key and must be kept as secret as it.
  ChaChaStream reserve(std::uint64_t blocks);

 private:
  struct Seeded {
    std::uint64_t seed;
  };
  explicit SecretRandom(Seeded seeded);
  void take(SecretRandom& other) noexcept;
  void forget() noexcept;
  void key_from_system();
  void follow_fork();

  ChaChaStream next_;  // the first block not yet given out
  bool open_ = true;   // false when moved from
  bool secure_ = true;
  std::uint64_t generation_ = 0;             // of the process, among its forks
  std::array<std::uint64_t, 128> buffer_{};  // what the blocks computed side by side give
  std::size_t used_ = buffer_.size();
};

}  // namespace sotto
