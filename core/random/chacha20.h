// The ChaCha20 keystream (RFC 8439, Bernstein 2008), the source of secret randomness. Device code
// can include this header.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/half.h"

namespace sotto {

// Keys, nonces and blocks hold the RFC's bytes as little-endian words.
struct ChaChaKey {
  std::uint32_t word[8] = {};  // 256 bits
};

struct ChaChaNonce {
  std::uint32_t word[3] = {};  // 96 bits
};

struct ChaChaBlock {
  std::uint32_t word[16] = {};  // 64 bytes
};

inline constexpr std::size_t chacha_block_bytes = 64;  // of keystream

// x rotated by 0 < bits < 32.
HD constexpr std::uint32_t rotate_left(std::uint32_t x, int bits) {
  return x << bits | x >> (32 - bits);
}

// The quarter round (RFC 8439, section 2.1).
HD constexpr void chacha_quarter(std::uint32_t& a, std::uint32_t& b, std::uint32_t& c,
                                 std::uint32_t& d) {
  a += b, d = rotate_left(d ^ a, 16);
  c += d, b = rotate_left(b ^ c, 12);
  a += b, d = rotate_left(d ^ a, 8);
  c += d, b = rotate_left(b ^ c, 7);
}

// The state before the rounds: "expand 32-byte k", key, counter, nonce (RFC 8439, section 2.3).
HD constexpr ChaChaBlock chacha_state(const ChaChaKey& key, const ChaChaNonce& nonce,
                                      std::uint32_t counter) {
  const auto& k = key.word;
  return {{0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u, k[0], k[1], k[2], k[3], k[4], k[5],
           k[6], k[7], counter, nonce.word[0], nonce.word[1], nonce.word[2]}};
}

// One block of keystream (RFC 8439, section 2.3).
HD constexpr ChaChaBlock chacha20_block(const ChaChaKey& key, const ChaChaNonce& nonce,
                                        std::uint32_t counter) {
  constexpr int double_rounds = 10;
  const ChaChaBlock start = chacha_state(key, nonce, counter);
  ChaChaBlock y = start;
  auto& x = y.word;
  for (int round = 0; round < double_rounds; ++round) {
    for (int i = 0; i < 4; ++i) chacha_quarter(x[i], x[i + 4], x[i + 8], x[i + 12]);
    for (int i = 0; i < 4; ++i) {
      chacha_quarter(x[i], x[4 + (i + 1) % 4], x[8 + (i + 2) % 4], x[12 + (i + 3) % 4]);
    }
  }
  for (int i = 0; i < 16; ++i) x[i] += start.word[i];
  return y;
}

// A range of a long keystream, in Bernstein's layout: the block number has 64 bits (the RFC's
// counter and first nonce word), and `domain` the other 64, which separates independent sequences
// of one key.
struct ChaChaStream {
  ChaChaKey key;             // SECRET
  std::uint64_t domain = 0;  // of the sequence
  std::uint64_t block = 0;   // the number of the first block
};

// Block number stream.block + i.
HD constexpr ChaChaBlock chacha20_block(const ChaChaStream& stream, std::uint64_t i) {
  const std::uint64_t number = stream.block + i;
  return chacha20_block(
      stream.key,
      {{static_cast<std::uint32_t>(number >> 32), static_cast<std::uint32_t>(stream.domain),
        static_cast<std::uint32_t>(stream.domain >> 32)}},
      static_cast<std::uint32_t>(number));
}

// Writes the first `bytes` bytes of the stream, on the CPU, in vectors and on all threads. The
// bytes depend on the stream only.
void chacha20_keystream(const ChaChaStream& stream, void* out, std::size_t bytes);

}  // namespace sotto
