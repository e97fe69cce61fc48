// File tags: [optimised][sanitized][simd]
#include <algorithm>
#include <vector>

#include "core/threads/parallel.h"
#include "kernels/cpu/gemm/gemm_kernel.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/kernel_cases.h"

using namespace sotto;

namespace {

// Writes the rows of b [terms, columns], without gaps, in random pieces; pieces of zeros have no
// data.
template <class T>
tiles::RowWriter<T> writer_of(const Tensor& b, Random& random) {
  return [&](std::int64_t row, const tiles::RowOfPanels<T>& to) {
    const std::int64_t columns = b.size(1);
    const T* const from = b.data<T>() + row * columns;
    for (std::int64_t at = 0; at < columns;) {
      const std::int64_t count = between(random, 1, std::min<std::int64_t>(columns - at, 70));
      const bool zeros = std::all_of(from + at, from + at + count, [](T x) { return x == 0; });
      to.put(at, zeros ? nullptr : from + at, count);
      at += count;
    }
  };
}

template <class T>
void check_right_factors(Random& random, std::int64_t rows, std::int64_t terms,
                         std::int64_t columns) {
  const Dtype dtype = dtype_of<T>();
  INFO(name(dtype) << ' ' << rows << " x " << terms << " x " << columns);
  const Tensor a = random_tensor(random, {rows, terms}, dtype),
               b = random_tensor(random, {terms, columns}, {0, 1}, dtype);
  if (terms > 2) backend(cpu).fill(0, b.slice(0, terms / 2, terms / 2 + 1).view());
  const Tensor c = random_tensor(random, {rows, columns}, {0, 1}, dtype);
  const Tensor by_rows = clone(c), packed = clone(c), transposed = clone(c);
  const bool add = random() % 2;
  product(matrix(a.view(), 0), matrix(b.view(), 0), add, matrix(c.view(), 0));
  product_of_rows<T>(matrix(a.view(), 0), writer_of<T>(b, random), add, matrix(by_rows.view(), 0));
  CHECK(same_bits(by_rows, c));
  product(matrix(a.view(), 0), PackedMatrix(matrix(b.view(), 0), dtype), add,
          matrix(packed.view(), 0));
  CHECK(same_bits(packed, c));
  const Tensor turned = contiguous(b.transpose(0, 1));
  product(matrix(a.view(), 0), PackedMatrix(matrix(turned.transpose(0, 1).view(), 0), dtype), add,
          matrix(transposed.view(), 0));
  CHECK(same_bits(transposed, c));
}

}  // namespace

TEST_CASE("a packed factor and one written by rows give the bits of a product", "[gate]") {
  Random random(11);
  for (int round = 0; round < 60; ++round) {
    const std::int64_t rows = between(random, 1, 130),
                       terms = between(random, 0, round % 3 == 0 ? 900 : 60),
                       columns = between(random, 1, round % 4 == 0 ? 1100 : 110);
    check_right_factors<float>(random, rows, terms, columns);
    check_right_factors<double>(random, rows, terms, columns);
  }
}

TEST_CASE("any threads pack a factor") {
  const int threads = thread_count();
  Random random(12);
  for (const int count : {1, 3}) {
    set_thread_count(count);
    check_right_factors<float>(random, 7, 800, 1000);
  }
  set_thread_count(threads);
}
