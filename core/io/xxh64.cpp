#include "core/io/xxh64.h"

#include <array>
#include <bit>
#include <cstring>

namespace sotto {

namespace {

// The five primes of the specification.
constexpr std::uint64_t prime_1 = 0x9E3779B185EBCA87, prime_2 = 0xC2B2AE3D27D4EB4F,
                        prime_3 = 0x165667B19E3779F9, prime_4 = 0x85EBCA77C2B2AE63,
                        prime_5 = 0x27D4EB2F165667C5;

static_assert(std::endian::native == std::endian::little, "words are little-endian");

// Removes a number from the front of `bytes` and returns it.
template <class Number>
Number take(std::span<const std::byte>& bytes) {
  Number number;
  std::memcpy(&number, bytes.data(), sizeof number);
  bytes = bytes.subspan(sizeof number);
  return number;
}

std::uint64_t round(std::uint64_t lane, std::uint64_t word) {
  return std::rotl(lane + word * prime_2, 31) * prime_1;
}

// Consumes the complete stripes of four words, one accumulator per word (steps 1 to 3).
std::uint64_t take_stripes(std::span<const std::byte>& bytes, std::uint64_t seed) {
  std::array<std::uint64_t, 4> lanes = {seed + prime_1 + prime_2, seed + prime_2, seed,
                                        seed - prime_1};
  while (bytes.size() >= sizeof lanes) {
    for (std::uint64_t& lane : lanes) lane = round(lane, take<std::uint64_t>(bytes));
  }
  std::uint64_t sum = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) +
                      std::rotl(lanes[3], 18);
  for (const std::uint64_t lane : lanes) sum = (sum ^ round(0, lane)) * prime_1 + prime_4;
  return sum;
}

// Consumes the bytes of an incomplete stripe (step 5).
std::uint64_t add_rest(std::uint64_t sum, std::span<const std::byte> bytes) {
  while (bytes.size() >= sizeof(std::uint64_t))
    sum = std::rotl(sum ^ round(0, take<std::uint64_t>(bytes)), 27) * prime_1 + prime_4;
  if (bytes.size() >= sizeof(std::uint32_t))
    sum = std::rotl(sum ^ take<std::uint32_t>(bytes) * prime_1, 23) * prime_2 + prime_3;
  while (!bytes.empty()) sum = std::rotl(sum ^ take<std::uint8_t>(bytes) * prime_5, 11) * prime_1;
  return sum;
}

}  // namespace

std::uint64_t xxh64(std::span<const std::byte> bytes, std::uint64_t seed) {
  constexpr std::size_t stripe = 32;
  const std::uint64_t size = bytes.size();
  std::uint64_t sum = size < stripe ? seed + prime_5 : take_stripes(bytes, seed);
  sum = add_rest(sum + size, bytes);
  // Avalanche: every bit of the input affects every bit of the sum (step 6).
  sum = (sum ^ sum >> 33) * prime_2;
  sum = (sum ^ sum >> 29) * prime_3;
  return sum ^ sum >> 32;
}

}  // namespace sotto
