#include "core/random/chacha20.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/threads/parallel.h"

namespace sotto {

namespace {

static_assert(std::endian::native == std::endian::little, "keystream words are little-endian");

// Blocks computed side by side. The vector type is the compilers' portable one: it becomes one
// register or several, depending on the CPU.
constexpr std::size_t lanes = 16;
constexpr std::size_t group_bytes = lanes * chacha_block_bytes;
typedef std::uint32_t Lanes __attribute__((vector_size(4 * lanes)));

[[gnu::always_inline]] inline void step(Lanes& a, const Lanes& b, Lanes& d, int bits) {
  a += b;
  d ^= a;
  d = d << bits | d >> (32 - bits);
}

[[gnu::always_inline]] inline void quarter(Lanes& a, Lanes& b, Lanes& c, Lanes& d) {
  step(a, b, d, 16);
  step(c, d, b, 12);
  step(a, b, d, 8);
  step(c, d, b, 7);
}

// Sets lane i of state[w] to word w of block stream.block + first + i.
[[gnu::always_inline]] inline void start_lanes(const ChaChaStream& stream, std::uint64_t first,
                                               Lanes (&state)[16]) {
  const ChaChaNonce nonce{{0, static_cast<std::uint32_t>(stream.domain),
                           static_cast<std::uint32_t>(stream.domain >> 32)}};
  const ChaChaBlock shared = chacha_state(stream.key, nonce, 0);
  for (int w = 0; w < 16; ++w) state[w] = Lanes{} + shared.word[w];
  for (std::size_t i = 0; i < lanes; ++i) {
    const std::uint64_t number = stream.block + first + i;
    state[12][i] = static_cast<std::uint32_t>(number);
    state[13][i] = static_cast<std::uint32_t>(number >> 32);
  }
}

[[gnu::always_inline]] inline void store_lanes(const Lanes (&x)[16], char* out) {
  std::uint32_t by_word[16][lanes];
  std::uint32_t by_block[lanes][16];
  std::memcpy(by_word, x, sizeof by_word);
  for (std::size_t i = 0; i < lanes; ++i) {
    for (std::size_t w = 0; w < 16; ++w) by_block[i][w] = by_word[w][i];
  }
  std::memcpy(out, by_block, sizeof by_block);
}

// Compiled for several instruction sets; the loader picks the best one that the CPU supports. All
// arithmetic is on integers, so each gives equal bits. The thread sanitizer does not support this
// dispatch, which runs before the sanitizer starts.
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_THREAD__)
#define FOR_INSTRUCTION_SETS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_INSTRUCTION_SETS
#endif

// Writes blocks `first` to first + lanes - 1 of the stream.
FOR_INSTRUCTION_SETS void write_group(const ChaChaStream& stream, std::uint64_t first, char* out) {
  constexpr int double_rounds = 10;
  Lanes start[16];
  Lanes x[16];
  start_lanes(stream, first, start);
  std::copy(start, start + 16, x);
  for (int round = 0; round < double_rounds; ++round) {
    quarter(x[0], x[4], x[8], x[12]);
    quarter(x[1], x[5], x[9], x[13]);
    quarter(x[2], x[6], x[10], x[14]);
    quarter(x[3], x[7], x[11], x[15]);
    quarter(x[0], x[5], x[10], x[15]);
    quarter(x[1], x[6], x[11], x[12]);
    quarter(x[2], x[7], x[8], x[13]);
    quarter(x[3], x[4], x[9], x[14]);
  }
  for (int w = 0; w < 16; ++w) x[w] += start[w];
  store_lanes(x, out);
}

}  // namespace

void chacha20_keystream(const ChaChaStream& stream, void* out, std::size_t bytes) {
  constexpr std::int64_t grain = 256;  // 256 KiB, about 0.1 ms: less is not worth a thread
  auto* const to = static_cast<char*>(out);
  const std::size_t whole = bytes / group_bytes;
  parallel_for(static_cast<std::int64_t>(whole), grain, [&](std::int64_t begin, std::int64_t end) {
    for (auto g = static_cast<std::size_t>(begin); g < static_cast<std::size_t>(end); ++g) {
      write_group(stream, g * lanes, to + g * group_bytes);
    }
  });
  if (const std::size_t rest = bytes % group_bytes) {
    char last[group_bytes];
    write_group(stream, whole * lanes, last);
    std::memcpy(to + whole * group_bytes, last, rest);
  }
}

}  // namespace sotto
