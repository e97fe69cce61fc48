// Public randomness: initialisation, dropout, augmentation, synthetic data. Philox 4x32-10 (Salmon
// et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") is a function of (seed, stream,
// counter), so host and device draw equal words and a replay draws equal numbers. It is not secret:
// noise and batch sampling use secret_random.h. Device code can include this header.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "core/half.h"

namespace sotto {

// Selects one sequence. Give each purpose its own stream: the functions below read the same words,
// so uniform(key, i) and normal(key, i) are not independent.
struct PhiloxKey {
  std::uint64_t seed = 0;    // public
  std::uint64_t stream = 0;  // of the purpose

  bool operator==(const PhiloxKey&) const = default;
};

struct PhiloxBlock {
  std::uint32_t word[4];  // 128 bits
};

// Block number `counter`: Philox 4x32 with ten rounds, key words (seed), counter words (counter,
// stream), each low half first.
HD inline PhiloxBlock philox(PhiloxKey key, std::uint64_t counter) {
  // Multipliers and Weyl increments of Salmon et al. 2011, section 3.5.
  constexpr std::uint64_t m0 = 0xd2511f53u;
  constexpr std::uint64_t m1 = 0xcd9e8d57u;
  constexpr std::uint32_t w0 = 0x9e3779b9u;
  constexpr std::uint32_t w1 = 0xbb67ae85u;
  constexpr int rounds = 10;
  auto k0 = static_cast<std::uint32_t>(key.seed);
  auto k1 = static_cast<std::uint32_t>(key.seed >> 32);
  PhiloxBlock x{{static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
                 static_cast<std::uint32_t>(key.stream),
                 static_cast<std::uint32_t>(key.stream >> 32)}};
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t p0 = m0 * x.word[0];
    const std::uint64_t p1 = m1 * x.word[2];
    x = {{static_cast<std::uint32_t>(p1 >> 32) ^ x.word[1] ^ k0, static_cast<std::uint32_t>(p1),
          static_cast<std::uint32_t>(p0 >> 32) ^ x.word[3] ^ k1, static_cast<std::uint32_t>(p0)}};
    k0 += w0;
    k1 += w1;
  }
  return x;
}

// Word `index` (64 bits) of a sequence: one half of block index / 2.
HD inline std::uint64_t philox_word(PhiloxKey key, std::uint64_t index) {
  const PhiloxBlock block = philox(key, index / 2);
  const int at = 2 * static_cast<int>(index % 2);
  return block.word[at] | std::uint64_t{block.word[at + 1]} << 32;
}

// The upper 53 bits of a word as a number in [0, 1).
HD inline double unit_interval(std::uint64_t word) {
  return static_cast<double>(word >> 11) * 0x1p-53;
}

// The upper 24 bits of a word as a number in [0, 1).
HD inline float unit_interval(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

// Uniform in [0, 1) with 53 bits; two numbers per block.
HD inline double uniform(PhiloxKey key, std::uint64_t index) {
  return unit_interval(philox_word(key, index));
}

// Uniform in [0, 1) with 24 bits; four numbers per block.
HD inline float uniform_float(PhiloxKey key, std::uint64_t index) {
  return unit_interval(philox(key, index / 4).word[index % 4]);
}

// Standard normal by Box and Muller 1958; block index / 2 gives the cosine for an even index and
// the sine for an odd one. |z| < 8.6. Host and device agree up to the rounding of log, sin, cos.
HD inline double normal(PhiloxKey key, std::uint64_t index) {
  constexpr double two_pi = 6.283185307179586476925;
  const PhiloxBlock x = philox(key, index / 2);
  const double u = unit_interval(x.word[0] | std::uint64_t{x.word[1]} << 32);
  const double angle = two_pi * unit_interval(x.word[2] | std::uint64_t{x.word[3]} << 32);
  const double radius = std::sqrt(-2 * std::log(1 - u));
  return radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

// A sequential generator over the Philox sequence (seed, stream), on the host. It does not convert
// to or from SecretRandom. Each call uses one 64-bit word, normal() one block of two, and below()
// and shuffle() as many as they need.
//   PublicRandom random(2024);
//   const double u = random.uniform();
class PublicRandom {
 public:
  // Begins at word 0 of the sequence.
  explicit PublicRandom(std::uint64_t seed, std::uint64_t stream = 0) : key_{seed, stream} {}

  std::uint64_t word() { return philox_word(key_, counter_++); }  // the next one
  // Uniform in [0, 1), with 53 bits.
  double uniform() { return unit_interval(word()); }
  // Standard normal.
  double normal();
  // Uniform on the integers of [0, n). Throws std::invalid_argument if n < 1.
  std::int64_t below(std::int64_t n);
  // Permutes the values uniformly at random (Fisher and Yates).
  void shuffle(std::span<std::int64_t> values);

  PhiloxKey key() const { return key_; }
  // The number of words used so far; after set_counter(n), the next word is number n.
  std::uint64_t counter() const { return counter_; }
  // Goes on from word number `counter`.
  void set_counter(std::uint64_t counter) { counter_ = counter; }

 private:
  PhiloxKey key_;
  std::uint64_t counter_ = 0;
};

}  // namespace sotto
