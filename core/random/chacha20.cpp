#include "core/random/chacha20.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/threads/parallel.h"
#include "core/threads/simd_dispatch.h"

namespace sotto {

namespace {

static_assert(std::endian::native == std::endian::little, "keystream words are little-endian");

// Blocks computed side by side, one in each lane of a vector, whose 16 words fill 16 registers. The
// vector types are the compilers' portable ones.
template <std::size_t lanes>
struct Side {
  typedef std::uint32_t Words __attribute__((vector_size(4 * lanes)));
  typedef std::uint8_t Bytes __attribute__((vector_size(4 * lanes)));
  using State = Words[16];
  using Numbers = std::make_index_sequence<lanes>;
  using ByteNumbers = std::make_index_sequence<4 * lanes>;
};

// Each word of x rotated left by `bits`, a multiple of 8, in one instruction of AVX2.
template <int bits, class Bytes, class Words, std::size_t... i>
[[gnu::always_inline]] inline Words bytes_rotated(const Words& x, std::index_sequence<i...>) {
  const auto bytes = reinterpret_cast<Bytes>(x);
  return reinterpret_cast<Words>(
      __builtin_shufflevector(bytes, bytes, (i / 4 * 4 + (i + 4 - bits / 8) % 4)...));
}

template <int bits, std::size_t lanes, class Words = typename Side<lanes>::Words>
[[gnu::always_inline]] inline void step(Words& a, const Words& b, Words& d) {
  a += b;
  d ^= a;
  if constexpr (lanes == 8 && bits % 8 == 0) {
    d = bytes_rotated<bits, typename Side<lanes>::Bytes>(d, typename Side<lanes>::ByteNumbers());
  } else {
    d = d << bits | d >> (32 - bits);
  }
}

template <std::size_t lanes, class Words = typename Side<lanes>::Words>
[[gnu::always_inline]] inline void quarter(Words& a, Words& b, Words& c, Words& d) {
  step<16, lanes>(a, b, d);
  step<12, lanes>(c, d, b);
  step<8, lanes>(a, b, d);
  step<7, lanes>(c, d, b);
}

// 0 to lanes - 1
template <class Words, std::uint32_t... i>
[[gnu::always_inline]] inline Words numbers(std::integer_sequence<std::uint32_t, i...>) {
  return Words{i...};
}

// Sets lane i of state[w] to word w of block stream.block + first + i.
template <std::size_t lanes>
[[gnu::always_inline]] inline void start_lanes(const ChaChaStream& stream, std::uint64_t first,
                                               typename Side<lanes>::State& state) {
  using Words = typename Side<lanes>::Words;
  const ChaChaNonce nonce{{0, static_cast<std::uint32_t>(stream.domain),
                           static_cast<std::uint32_t>(stream.domain >> 32)}};
  const ChaChaBlock shared = chacha_state(stream.key, nonce, 0);
  for (int w = 0; w < 16; ++w) state[w] = Words{} + shared.word[w];
  const std::uint64_t number = stream.block + first;
  const Words low = Words{} + static_cast<std::uint32_t>(number);
  state[12] = low + numbers<Words>(std::make_integer_sequence<std::uint32_t, lanes>());
  // A comparison that holds is -1: the carry.
  state[13] = static_cast<std::uint32_t>(number >> 32) - reinterpret_cast<Words>(state[12] < low);
}

// Exchanges the odd groups of `group` words of a with the even ones of b.
template <std::size_t group, class Words, std::size_t... i>
[[gnu::always_inline]] inline void exchange(Words& a, Words& b, std::index_sequence<i...>) {
  constexpr std::size_t lanes = sizeof...(i);
  const Words even = __builtin_shufflevector(a, b, ((i & group) ? lanes + i - group : i)...);
  b = __builtin_shufflevector(a, b, ((i & group) ? lanes + i : i + group)...);
  a = even;
}

// Transposes the square of `lanes` vectors x.
template <std::size_t lanes, std::size_t group = 1>
[[gnu::always_inline]] inline void transpose(typename Side<lanes>::Words* x) {
  if constexpr (group < lanes) {
    for (std::size_t i = 0; i < lanes; ++i) {
      if ((i & group) == 0) exchange<group>(x[i], x[i + group], typename Side<lanes>::Numbers());
    }
    transpose<lanes, 2 * group>(x);
  }
}

// Writes blocks `first` to first + lanes - 1 of the stream.
template <std::size_t lanes>
[[gnu::always_inline]] inline void write_lanes(const ChaChaStream& stream, std::uint64_t first,
                                               char* out) {
  constexpr int double_rounds = 10;
  typename Side<lanes>::State start, x;
  start_lanes<lanes>(stream, first, start);
  std::copy(start, start + 16, x);
  for (int round = 0; round < double_rounds; ++round) {
    quarter<lanes>(x[0], x[4], x[8], x[12]);
    quarter<lanes>(x[1], x[5], x[9], x[13]);
    quarter<lanes>(x[2], x[6], x[10], x[14]);
    quarter<lanes>(x[3], x[7], x[11], x[15]);
    quarter<lanes>(x[0], x[5], x[10], x[15]);
    quarter<lanes>(x[1], x[6], x[11], x[12]);
    quarter<lanes>(x[2], x[7], x[8], x[13]);
    quarter<lanes>(x[3], x[4], x[9], x[14]);
  }
  for (int w = 0; w < 16; ++w) x[w] += start[w];
  for (std::size_t w = 0; w < 16; w += lanes) {
    transpose<lanes>(x + w);
    for (std::size_t i = 0; i < lanes; ++i)
      std::memcpy(out + i * chacha_block_bytes + w * sizeof(std::uint32_t), &x[w + i], sizeof x[0]);
  }
}

// The blocks written together: as many as the widest vectors have lanes.
constexpr std::size_t group_blocks = 16;
constexpr std::size_t group_bytes = group_blocks * chacha_block_bytes;

// Writes blocks `first` to first + group_blocks - 1 of the stream.
template <std::size_t lanes>
[[gnu::always_inline]] inline void write_group_by(const ChaChaStream& stream, std::uint64_t first,
                                                  char* out) {
  for (std::size_t at = 0; at < group_blocks; at += lanes)
    write_lanes<lanes>(stream, first + at, out + at * chacha_block_bytes);
}

// All arithmetic is on integers, so each instruction set gives equal bits.
#if defined(__x86_64__)

[[gnu::target("avx512f")]] void write_group_avx512(const ChaChaStream& stream, std::uint64_t first,
                                                   char* out) {
  write_group_by<16>(stream, first, out);
}

[[gnu::target("avx2")]] void write_group_avx2(const ChaChaStream& stream, std::uint64_t first,
                                              char* out) {
  write_group_by<8>(stream, first, out);
}

#endif

void write_group_portable(const ChaChaStream& stream, std::uint64_t first, char* out) {
  write_group_by<4>(stream, first, out);
}

using WriteGroup = void (*)(const ChaChaStream& stream, std::uint64_t first, char* out);

WriteGroup write_group() {
#if defined(__x86_64__)
  if (has_avx512()) return write_group_avx512;
  if (has_avx2()) return write_group_avx2;
#endif
  return write_group_portable;
}

}  // namespace

void chacha20_keystream(const ChaChaStream& stream, void* out, std::size_t bytes) {
  constexpr std::int64_t grain = 256;  // 256 KiB, about 0.1 ms: less is not worth a thread
  auto* const to = static_cast<char*>(out);
  const std::size_t whole = bytes / group_bytes;
  const WriteGroup write = write_group();
  parallel_for(static_cast<std::int64_t>(whole), grain, [&](std::int64_t begin, std::int64_t end) {
    for (auto g = static_cast<std::size_t>(begin); g < static_cast<std::size_t>(end); ++g) {
      write(stream, g * group_blocks, to + g * group_bytes);
    }
  });
  if (const std::size_t rest = bytes % group_bytes) {
    char last[group_bytes];
    write(stream, whole * group_blocks, last);
    std::memcpy(to + whole * group_bytes, last, rest);
  }
}

}  // namespace sotto
