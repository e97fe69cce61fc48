#include "core/io/xxh64.h"

#include <cstddef>
#include <vector>

#include "tests/support/catch.h"

using namespace sotto;

namespace {

std::vector<std::byte> bytes_of(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(7 * i + 3);
  return bytes;
}

}  // namespace

// The values of the reference library (libxxhash 0.8).
TEST_CASE("XXH64 gives the reference's values for every length of what is left over") {
  struct Case {
    std::size_t size;
    std::uint64_t plain, seeded;
  };
  const Case cases[] = {
      {0, 0xef46db3751d8e999, 0x0b303d920ec349df},   {1, 0x1f25c8d0bc1f4bb6, 0x4e38da78585833ff},
      {3, 0x31d2363f52e564c9, 0xdb3c6b59a9bf9c25},   {4, 0x9bb64b7d66ee9fda, 0xdce74de74556ff94},
      {7, 0x9a7b149959ce60d8, 0xba5b6f2cc49d11a0},   {8, 0xdab99d95c6f90092, 0xf66e0ca3301b75a3},
      {12, 0xd52e407833af5133, 0xd70ab81030abd2af},  {31, 0xa2aa5f33cc4a6119, 0x66f647a52a03a377},
      {32, 0x23c3c17ef790fd97, 0x01b323691afef034},  {33, 0x50a7cfc7ba588784, 0x527f3caeff0c9292},
      {63, 0x5e3e54b431c7493c, 0xca00b70007169fc7},  {64, 0x0eb64b3ef6eeb01f, 0x34d5a64ae8dc6e9f},
      {100, 0xa61f8d4c170fe531, 0x919ccda367e2a61e}, {1000, 0x5f235fa033f1a3fb, 0x536c1e1bf0f9cb01},
  };
  for (const auto& [size, plain, seeded] : cases) {
    INFO(size);
    CHECK(xxh64(bytes_of(size)) == plain);
    CHECK(xxh64(bytes_of(size), 0x9E3779B185EBCA8D) == seeded);
  }
}

TEST_CASE("every bit that flips changes the sum") {
  const std::vector<std::byte> bytes = bytes_of(77);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::vector<std::byte> flipped = bytes;
    flipped[bit / 8] ^= std::byte{1} << bit % 8;
    CHECK(xxh64(flipped) != xxh64(bytes));
  }
}
