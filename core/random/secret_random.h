// Secret randomness for noise and batch sampling: privacy depends on its being unpredictable. It is
// a ChaCha20 keystream with a key from the operating system; every device expands it to equal bits.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "core/random/chacha20.h"

namespace sotto {

// A generator that never returns a word twice. It can be moved but not copied, and does not convert
// to or from PublicRandom. After fork() the child takes a new key from the operating system before
// its first word; a seeded generator throws in the child instead. Not thread-safe.
class SecretRandom {
 public:
  // Takes a key from the operating system. Throws SystemFailure if that fails.
  SecretRandom();
  // A generator whose words depend on the seed only: for tests, never private.
  static SecretRandom insecure_seeded(std::uint64_t seed);
  // Erases the key. A generator that was moved from has none and throws when used.
  ~SecretRandom();
  SecretRandom(SecretRandom&& other) noexcept;
  // Takes over the key, and erases its own.
  SecretRandom& operator=(SecretRandom&& other) noexcept;

  // True if the key is from the operating system, false if from a seed.
  bool secure() const { return secure_; }

  // The number of forks between the first call (or generator) and this process. Another process
  // knows the words that were drawn before the last fork.
  static std::uint64_t forks();

  // A uniform 64-bit word. Throws std::invalid_argument if the generator is used up (2^62 blocks),
  // was moved from, or is seeded and in a child of fork().
  std::uint64_t word();
  // Uniform in [0, 1), with 53 bits.
  double uniform();
  // Uniform on the integers of [0, n). Throws std::invalid_argument if n < 1.
  std::int64_t below(std::int64_t n);
  // Fills `out` from fresh blocks, in parallel; the rest of the last block is discarded. The bytes
  // do not depend on the number of threads.
  void fill(std::span<std::uint8_t> out);
  void fill(std::span<std::uint32_t> out);
  void fill(std::span<std::uint64_t> out);

  // Reserves the next `blocks` blocks of the keystream for the caller, as for a device that expands
  // them itself. The result contains the key and must be kept secret.
  ChaChaStream reserve(std::uint64_t blocks);

 private:
  explicit SecretRandom(std::uint64_t seed);
  void take(SecretRandom& other) noexcept;
  void forget() noexcept;
  void follow_fork();

  ChaChaStream next_;  // first block not yet reserved
  bool open_ = true;   // false after a move
  bool secure_ = true;
  std::uint64_t generation_ = 0;             // forks() when the key was drawn
  std::array<std::uint64_t, 128> buffer_{};  // words of the blocks computed side by side
  std::size_t used_ = buffer_.size();
};

}  // namespace sotto
