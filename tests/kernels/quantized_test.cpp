// Matrices of quantised blocks: their values, and products with them as they lie.
// File tags: [optimised][sanitized][simd]
#include "kernels/quantized/quantized.h"

#include <cmath>

#include "tests/support/catch.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/random_blocks.h"
#include "tests/support/threads.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

double half(const std::uint8_t* at) {
  f16 x;
  std::memcpy(&x.bits, at, 2);
  return static_cast<double>(static_cast<float>(x));
}

// Bit `bit` of a string of bytes, from the lowest of the first.
int bit_at(const std::uint8_t* bytes, int bit) { return bytes[bit / 8] >> bit % 8 & 1; }

// `count` bits from `bit` on.
int bits_at(const std::uint8_t* bytes, int bit, int count) {
  int x = 0;
  for (int k = 0; k < count; ++k) x |= bit_at(bytes, bit + k) << k;
  return x;
}

// The 6-bit scale k (what = 0) or the factor of the minimum (what = 1) of a q4_k block.
int six_bits(const std::uint8_t* packed, int k, int what) {
  if (k < 4) return bits_at(packed, 8 * (4 * what + k), 6);
  return bits_at(packed, 8 * (4 + k) + 4 * what, 4) | bits_at(packed, 8 * (4 * what + k - 4) + 6, 2)
                                                          << 4;
}

// Value j of a block by the description of its format, in double.
double value_of(BlockFormat format, const std::uint8_t* b, int j) {
  const auto nibble = [&](int first) { return bits_at(b + first, 8 * (j % 16) + 4 * (j / 16), 4); };
  switch (format) {
    case BlockFormat::q8_0: return half(b) * static_cast<std::int8_t>(b[2 + j]);
    case BlockFormat::q4_0: return half(b) * (nibble(2) - 8);
    case BlockFormat::q4_1: return half(b) * nibble(4) + half(b + 2);
    case BlockFormat::q4_k: {
      const int q = bits_at(b + 16, 8 * (j / 64 * 32 + j % 32) + 4 * (j / 32 % 2), 4);
      return half(b) * six_bits(b + 4, j / 32, 0) * q - half(b + 2) * six_bits(b + 4, j / 32, 1);
    }
    case BlockFormat::q6_k: break;
  }
  const int within = j % 128;
  const int low = bits_at(b, 8 * (j / 128 * 64 + within % 64) + 4 * (within / 64), 4);
  const int high = bits_at(b + 128, 8 * (j / 128 * 32 + within % 32) + 2 * (within / 32), 2);
  return half(b + 208) * static_cast<std::int8_t>(b[192 + j / 16]) * ((low | high << 4) - 32);
}

// Sizes around those of panels and chains.
struct Sizes {
  std::int64_t n, rows, columns;
};
constexpr Sizes sizes[] = {{1, 1, 256},   {1, 33, 768},   {3, 17, 256},
                           {9, 400, 256}, {8, 193, 1024}, {20, 16, 1280}};

Tensor wide_of(const BlockMatrix& w, Dtype dtype) { return to_dtype(dequantize(w), dtype); }

}  // namespace

TEST_CASE("blocks have the values of their formats") {
  PublicRandom random(1);
  for (const BlockFormat format : block_formats) {
    const BlockMatrix w = random_blocks(random, format, 3, 1024);
    const std::vector<float> all = dequantize(w).to_vector<float>();
    const BlockSize block = block_size(format);
    bool same = true;
    for (std::int64_t k = 0; k < std::ssize(all); ++k) {
      const std::uint8_t* const at = w.bytes.data<std::uint8_t>() + k / block.values * block.bytes;
      const double expected = value_of(format, at, static_cast<int>(k % block.values));
      same = same && all[static_cast<std::size_t>(k)] == static_cast<float>(expected);
    }
    INFO(name(format));
    CHECK(same);
  }
}

TEST_CASE("products with blocks have the bits of products with the widened matrix") {
  PublicRandom bytes(2);
  Random random(3);
  for (const BlockFormat format : block_formats) {
    for (const Sizes& s : sizes) {
      const BlockMatrix w = random_blocks(bytes, format, s.rows, s.columns);
      for (const Dtype dtype : float_dtypes) {
        INFO(name(format) << " " << s.n << " " << s.rows << " " << s.columns << " " << name(dtype));
        const Tensor wide = wide_of(w, dtype), x = random_tensor(random, {s.n, s.columns}, dtype);
        CHECK(same_bits(multiply_blocks(x, w), gemm(x, wide.transpose(0, 1))));
        const Tensor dy = random_tensor(random, {s.n, s.rows}, dtype),
                     dx = multiply_blocks_transposed(dy, w);
        CHECK(same_bits(dx, gemm(dy, wide)));
      }
    }
  }
}

TEST_CASE("products in 16 bits with more rows of blocks than a panel has are added in f32") {
  PublicRandom bytes(11);
  Random random(12);
  const BlockMatrix w = random_blocks(bytes, BlockFormat::q4_0, 1100, 1280);
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    const Tensor wide = wide_of(w, dtype), x = random_tensor(random, {3, 1280}, dtype),
                 dy = random_tensor(random, {3, 1100}, dtype),
                 dx = multiply_blocks_transposed(dy, w);
    INFO(name(dtype));
    CHECK(same_bits(multiply_blocks(x, w), gemm(x, wide.transpose(0, 1))));
    check_close(dx, values(gemm(to_dtype(dy, Dtype::f64), to_dtype(wide, Dtype::f64))));
    for (const std::int64_t row : {0, 2})
      CHECK(same_bits(multiply_blocks_transposed(dy.slice(0, row, row + 1), w),
                      dx.slice(0, row, row + 1)));
  }
}

TEST_CASE("a row of a product with blocks has the same bits alone, and on any number of threads") {
  PublicRandom bytes(4);
  Random random(5);
  for (const BlockFormat format : block_formats) {
    const BlockMatrix w = random_blocks(bytes, format, 130, 512);
    for (const Dtype dtype : float_dtypes) {
      const Tensor x = random_tensor(random, {20, 512}, dtype),
                   dy = random_tensor(random, {20, 130}, dtype);
      const Tensor y = multiply_blocks(x, w), dx = multiply_blocks_transposed(dy, w);
      INFO(name(format) << " " << name(dtype));
      for (const std::int64_t row : {0, 11, 19}) {
        CHECK(same_bits(multiply_blocks(x.slice(0, row, row + 1), w), y.slice(0, row, row + 1)));
        CHECK(same_bits(multiply_blocks_transposed(dy.slice(0, row, row + 1), w),
                        dx.slice(0, row, row + 1)));
      }
      const Threads threads(3);
      CHECK(same_bits(multiply_blocks(x, w), y));
      CHECK(same_bits(multiply_blocks_transposed(dy, w), dx));
    }
  }
}

TEST_CASE("a scale that is no number spoils the values of its block alone") {
  PublicRandom bytes(6);
  Random random(7);
  for (const BlockFormat format : block_formats) {
    for (const float hostile : {std::nanf(""), HUGE_VALF, -65504.0f}) {
      const BlockMatrix w = random_blocks(bytes, format, 5, 512);
      const Tensor x = random_tensor(random, {3, 512}, Dtype::f32), before = multiply_blocks(x, w);
      const std::int64_t second = block_size(format).bytes;
      std::uint8_t* const row = w.bytes.data<std::uint8_t>() + 2 * w.bytes.size(1);
      set_scale(row + second + scale_offsets(format)[0], f16(hostile));
      const Tensor y = multiply_blocks(x, w), wide = dequantize(w);
      INFO(name(format) << " " << hostile);
      CHECK(same_bits(y.slice(1, 0, 2), before.slice(1, 0, 2)));
      CHECK(same_bits(y.slice(1, 3, 5), before.slice(1, 3, 5)));
      CHECK(std::isfinite(y.at({0, 2})) == (hostile == -65504.0f));
      CHECK(std::isfinite(wide.at({2, block_size(format).values - 1})));
      const Tensor dx = multiply_blocks_transposed(full({1, 5}, 1), w);
      CHECK(std::isfinite(dx.at({0, 0})));
    }
  }
}

TEST_CASE("products with blocks take no rows, no columns, and values in any order of memory") {
  PublicRandom bytes(8);
  Random random(9);
  const BlockMatrix w = random_blocks(bytes, BlockFormat::q4_1, 6, 64),
                    none = random_blocks(bytes, BlockFormat::q8_0, 0, 64),
                    narrow = random_blocks(bytes, BlockFormat::q8_0, 4, 0);
  for (const Dtype dtype : float_dtypes) {
    CHECK(multiply_blocks(zeros({0, 64}, dtype), w).shape() == Shape{0, 6});
    CHECK(multiply_blocks_transposed(zeros({2, 0, 6}, dtype), w).shape() == Shape{2, 0, 64});
    CHECK(multiply_blocks(zeros({2, 64}, dtype), none).shape() == Shape{2, 0});
    CHECK(values(multiply_blocks_transposed(zeros({1, 0}, dtype), none)) ==
          std::vector<double>(64, 0));
    CHECK(values(multiply_blocks(zeros({1, 0}, dtype), narrow)) == std::vector<double>(4, 0));
    const Tensor x = random_tensor(random, {2, 3, 64}, {2, 0, 1}, dtype);
    const Tensor y = multiply_blocks(x, w);
    CHECK(y.shape() == Shape{2, 3, 6});
    CHECK(same_bits(y.select(0, 1), multiply_blocks(contiguous(x.select(0, 1)), w)));
  }
  CHECK(dequantize(none).shape() == Shape{0, 64});
}

TEST_CASE("rows of blocks are looked up, and blocks that do not fit are refused") {
  PublicRandom bytes(10);
  const BlockMatrix w = random_blocks(bytes, BlockFormat::q6_k, 4, 256);
  const Tensor ids = Tensor::from(std::vector<std::int64_t>{3, 0, 3}, {3, 1}),
               rows = dequantize_rows(w, ids);
  CHECK(same_bits(rows.slice(0, 0, 1), dequantize(w).slice(0, 3, 4)));
  CHECK(same_bits(rows.slice(0, 1, 2), dequantize(w).slice(0, 0, 1)));
  for (const std::int64_t id : {-1, 4})
    CHECK(throws([&] { dequantize_rows(w, Tensor::from(std::vector<std::int64_t>{id}, {1})); },
                 "in a table of 4 rows"));
  CHECK(throws([&] { multiply_blocks(zeros({2, 255}), w); }, "(2, 255) does not fit"));
  CHECK(throws([&] { multiply_blocks_transposed(zeros({2, 3}), w); }, "(2, 3) does not fit"));
  const auto refused = [&](const Shape& shape, const Tensor& given, const char* why) {
    return throws([&] { dequantize({BlockFormat::q6_k, shape, given}); }, why);
  };
  CHECK(refused({4, 255}, w.bytes, "255 values are not whole blocks of 256 in Q6_K"));
  CHECK(refused({5, 256}, w.bytes, "(4, 210) bytes"));
  CHECK(refused({4, 1, 256}, w.bytes, "no matrix"));
  CHECK(refused({4, 256}, zeros({4, 210}), "not bytes"));
  CHECK(refused({4, 256}, Tensor(), "not bytes"));
  CHECK(refused({4, 256}, Tensor::empty_ordered({4, 210}, {1, 0}, Dtype::u8, cpu), "row-major"));
}
