// The GPU's kernels, run on the host, against the CPU's: the primitives that no other test runs on
// every engine. Shapes, strides and types are random; outputs are filled with NaN before.
// File tags: [gpu][sanitized]
#include "kernels/cuda/reduce.h"
#include "kernels/functors/functors.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/kernel_cases.h"

using namespace sotto;

namespace {

Shape random_shape(Random& random, int min_rank = 0) {
  Shape shape;
  for (int i = static_cast<int>(between(random, min_rank, 4)); i > 0; --i) {
    shape.push_back(between(random, random() % 12 == 0 ? 0 : 1, 9));
  }
  return shape;
}

// An operand of any strides: gaps, repeats, any order, row-major, or an unaligned first element.
Tensor operand(Random& random, const Shape& shape, Dtype dtype) {
  if (shape.empty()) return random_tensor(random, shape, dtype);
  const int axis = static_cast<int>(between(random, 0, shape.rank() - 1));
  Shape stored = shape, in_order;
  for (int i = 0; i < shape.rank(); ++i) in_order.push_back(i);
  switch (between(random, 0, 5)) {
    case 0:
      stored[axis] = 2 * shape[axis] + 1;
      return random_tensor(random, stored, dtype).slice(axis, 1, 2 * shape[axis] + 1, 2);
    case 1: stored[axis] = 1; return random_tensor(random, stored, dtype).expand(shape);
    case 2: return random_tensor(random, shape, dtype);
    case 3:
      ++stored[0];
      return random_tensor(random, stored, in_order, dtype).slice(0, 1, stored[0]);
    default: return random_tensor(random, shape, in_order, dtype);
  }
}

Tensor result(Random& random, const Shape& shape, Dtype dtype) {
  return unwritten(shape, random_order(random, shape.rank()), dtype);
}

}  // namespace

TEST_CASE("device code: every unary functor and its derivative") {
  Random random(51);
  for (int op = 0; op < UnaryFunctors::size; ++op) {
    Constants c;
    double low = -2, high = 2;
    UnaryFunctors::at(op, [&]<class F>(std::type_identity<F>) {
      INFO(F::name);
      if constexpr (requires { F::sample; }) c = F::sample;
      if constexpr (requires { F::low; }) low = F::low, high = F::high;
      for (int round = 0; round < 8; ++round) {
        const Dtype dtype = float_dtypes[round % 4];
        const Shape shape = round < 4 ? Shape{67} : random_shape(random);
        const auto draw = [&] {
          const Tensor u = operand(random, shape, dtype);
          return add(scale(u, (high - low) / 2), full(shape, (high + low) / 2, dtype));
        };
        const Tensor x = draw(), y = unary(op, x, c), dy = operand(random, shape, dtype);
        check_on_devices(result(random, shape, dtype),
                         [&](Backend& b, const View& to) { b.unary(op, c, x.view(), to); });
        check_on_devices(result(random, shape, dtype), [&](Backend& b, const View& to) {
          b.unary_grad(op, c, x.view(), y.view(), dy.view(), to);
        });
      }
    });
  }
}

TEST_CASE("device code: every binary functor and its derivatives") {
  Random random(52);
  for (int op = 0; op < BinaryFunctors::size; ++op) {
    for (int round = 0; round < 24; ++round) {
      const Dtype dtype = float_dtypes[round % 4];
      const Shape shape = round < 8 ? Shape{3, 41} : random_shape(random);
      const auto draw = [&] {
        return add(scale(operand(random, shape, dtype), 0.5), full(shape, 1, dtype));
      };
      const Tensor a = draw(), b = draw(), dy = operand(random, shape, dtype);
      check_on_devices(result(random, shape, dtype),
                       [&](Backend& on, const View& y) { on.binary(op, a.view(), b.view(), y); });
      for (const int which : {0, 1}) {
        check_on_devices(result(random, shape, dtype), [&](Backend& on, const View& d) {
          on.binary_grad(op, which, a.view(), b.view(), dy.view(), d);
        });
      }
    }
  }
}

TEST_CASE("device code: fill, copy, where and axpby between any types and strides") {
  constexpr Dtype all[] = {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16,
                           Dtype::i64, Dtype::i32, Dtype::u8,  Dtype::boolean};
  Random random(53);
  for (const Dtype from : all) {
    for (const Dtype to : all) {
      for (int round = 0; round < 6; ++round) {
        const Shape shape = round == 0 ? Shape{131} : random_shape(random);
        const Tensor x = to_dtype(scale(operand(random, shape, Dtype::f64), 50), from);
        const auto write = [&](Backend& b, const View& y) { b.copy(x.view(), y); };
        if (to != Dtype::u8) check_on_devices(result(random, shape, to), write);
        check_on_devices(result(random, shape, to),
                         [](Backend& b, const View& y) { b.fill(3, y); });
        if (!is_float(to)) continue;
        const Tensor a = operand(random, shape, to), b = operand(random, shape, to);
        check_on_devices(result(random, shape, to), [&](Backend& on, const View& y) {
          on.where(x.view(), a.view(), b.view(), y);
        });
        if (!is_float(from) || size_of(to) < size_of(from)) continue;
        check_on_devices(result(random, shape, to),
                         [&](Backend& on, const View& y) { on.axpby(0.7, x.view(), 0, y); });
        check_on_devices(random_tensor(random, shape, to),
                         [&](Backend& on, const View& y) { on.axpby(0.1, x.view(), -0.3, y); });
      }
    }
  }
}

namespace {

// An operand of [rows, width], and whether it can be read in packs.
struct RowsOperand {
  Tensor x;
  bool packs;
};

std::vector<RowsOperand> rows_operands(Random& random, std::int64_t lanes, Dtype dtype) {
  const std::int64_t rows = 3, width = 2 * lanes;
  const auto row_major = [&](const Shape& shape) {
    const Tensor x = scale(random_tensor(random, shape, {0, 1}, Dtype::f64), 3);
    return to_dtype(unary(unary_index<functors::Relu>, x), dtype);
  };
  const auto wider = [&](std::int64_t gap) { return row_major({rows, width + gap}); };
  return {{row_major({rows, width}), true},
          {wider(lanes).slice(1, 0, width), true},
          {wider(lanes).slice(1, lanes, width + lanes), true},
          {row_major({1, width}).expand({rows, width}), true},
          {row_major({rows, 1}).expand({rows, width}), true},
          {wider(1).slice(1, 0, width), false},
          {wider(lanes).slice(1, 1, width + 1), false},
          {row_major({width, rows}).transpose(0, 1), false}};
}

}  // namespace

TEST_CASE("device code: rows are processed in packs of 16 bytes where every pack is aligned") {
  Random random(58);
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    const auto lanes = static_cast<int>(16 / size_of(dtype));
    const auto all = rows_operands(random, lanes, dtype),
               bytes = rows_operands(random, lanes, Dtype::u8);
    // Results with gaps, which must not be written.
    const auto rows_of = [&](const Tensor& whole) { return whole.slice(1, lanes, 3 * lanes); };
    const auto check_rows = [&](auto&& call) {
      const auto run = [&] {
        const Tensor whole = full({3, 4 * lanes}, 9, dtype);
        call(backend(cpu), rows_of(whole).view());
        return whole;
      };
      const std::vector<double> expected = values(run());
      for_each_device_code([&] { check_close(run(), expected); });
    };
    for (const RowsOperand& a : all) {
      for (std::size_t k = 0; k < all.size(); ++k) {
        const RowsOperand& b = all[k];
        const std::array views{a.x.view(), b.x.view(),
                               rows_of(full({3, 4 * lanes}, 9, dtype)).view()};
        CHECK(packable(LoopNest<3>(views), views, lanes) == (a.packs && b.packs));
        check_rows([&](Backend& on, const View& y) {
          on.binary(binary_index<functors::Add>, a.x.view(), b.x.view(), y);
        });
        check_rows([&](Backend& on, const View& y) {
          on.where(bytes[k].x.view(), a.x.view(), b.x.view(), y);
        });
      }
      check_rows([&](Backend& on, const View& y) { on.copy(a.x.view(), y); });
    }
    // The rows of `odd` do not end with a whole pack.
    const Tensor odd = full({2, 2 * lanes}, 1, dtype).slice(1, 0, 2 * lanes - 1);
    const std::array views{odd.view(), odd.view()};
    CHECK(!packable(LoopNest<2>(views), views, lanes));
  }
}

TEST_CASE("sums of f32 and 16 bits are f32, in packs and one by one") {
  Random random(59);
  const auto check_sums = [](const Tensor& a, const Tensor& b) {
    const Tensor expected = add(a, to_dtype(b, Dtype::f32));
    CHECK(same_bits(add(a, b), expected));
    for_each_device_code([&] {
      CHECK(same_bits(add(a, b), expected));
      CHECK(same_bits(add(b, a), expected));
    });
  };
  for (const Dtype half : {Dtype::f16, Dtype::bf16}) {
    for (const RowsOperand& a : rows_operands(random, 8, Dtype::f32)) {
      for (const RowsOperand& b : rows_operands(random, 8, half)) check_sums(a.x, b.x);
    }
    for (const std::int64_t count : {1, 7, 8, 9, 64, 67})
      check_sums(random_tensor(random, {count}, Dtype::f32), random_tensor(random, {count}, half));
  }
}

TEST_CASE("device code: indices for slices and for elements") {
  Random random(54);
  const auto draw_ids = [&](const Shape& shape, std::int64_t min, std::int64_t size) {
    return to_dtype(fill(Tensor::empty(shape, Dtype::f64),
                         [&] { return static_cast<double>(between(random, min, size - 1)); }),
                    Dtype::i64);
  };
  for (int round = 0; round < 200; ++round) {
    const Dtype dtype = float_dtypes[round % 4];
    Shape shape = random_shape(random, 1);
    if (round % 5 == 0) shape = {7, 16};
    const int axis = round % 5 == 0 ? 0 : static_cast<int>(between(random, 0, shape.rank() - 1));
    if (shape[axis] == 0) continue;
    const Tensor x = round % 5 == 0 ? random_tensor(random, shape, {0, 1}, dtype)
                                    : operand(random, shape, dtype);
    Shape picked = shape;
    picked[axis] = between(random, 0, 11);
    const Tensor ids = draw_ids({picked[axis]}, -1, shape[axis]);
    check_on_devices(unwritten(picked, dtype),
                     [&](Backend& b, const View& y) { b.gather(x.view(), ids.view(), axis, y); });
    const Tensor add = operand(random, picked, dtype), each = draw_ids(picked, 0, shape[axis]);
    const Tensor many = draw_ids({picked[axis] * between(random, 1, 3)}, -1, shape[axis]);
    check_on_devices(random_tensor(random, shape, dtype), [&](Backend& b, const View& y) {
      b.scatter_add(add.view(), many.view(), axis, y);
    });
    check_on_devices(result(random, picked, dtype), [&](Backend& b, const View& y) {
      b.take_along(x.view(), each.view(), axis, y);
    });
    check_on_devices(random_tensor(random, shape, dtype), [&](Backend& b, const View& y) {
      b.put_along_add(add.view(), each.view(), axis, y);
    });
  }
}

TEST_CASE("device code: ids past the end read as NaN and are not written to") {
  for_each_device_code([] {
    const Tensor x = full({4, 8}, 1), ids = Tensor::from(std::vector<std::int64_t>{4, 1, 99}, {3});
    const Tensor y = zeros({3, 8});
    backend(cpu).gather(x.view(), ids.view(), 0, y.view());
    for (const int row : {0, 2}) CHECK(std::isnan(y.select(0, row).select(0, 5).item()));
    CHECK(y.select(0, 1).select(0, 5).item() == 1);
    const Tensor sums = zeros({4, 8});
    backend(cpu).scatter_add(full({3, 8}, 1).view(), ids.view(), 0, sums.view());
    CHECK(sum(sums).item() == 8);
  });
}

TEST_CASE("device code: public randomness has the CPU's bits") {
  const Tensor rows = Tensor::from(std::vector<std::int64_t>{7, 0, -3, 123, 1, -9}, {3, 2});
  for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::boolean}) {
    for (const Shape& shape : {Shape{3}, Shape{3, 1001}, Shape{3, 5, 7, 31}, Shape{3, 0}}) {
      const auto start = [&] {
        return is_float(dtype) ? unwritten(shape, dtype) : zeros(shape, dtype);
      };
      const Tensor y = start(), z = start();
      backend(cpu).bernoulli({7, 9}, rows.view(), 0.3, y.view());
      for_each_device_code([&] {
        backend(cpu).bernoulli({7, 9}, rows.view(), 0.3, z.view());
        CHECK(same_bits(y, z));
      });
    }
  }
}

TEST_CASE("device code: reductions in parts, and of rows", "[gate]") {
  Random random(55);
  for (const Shape& shape : {Shape{3, 40000}, Shape{40000, 3}, Shape{5, 2, 7000}}) {
    const Tensor x = random_tensor(random, shape, Dtype::f32);
    for (int axis = 0; axis < shape.rank(); ++axis) {
      Shape kept = shape;
      kept[axis] = 1;
      check_on_devices(unwritten(kept, Dtype::f32),
                       [&](Backend& b, const View& y) { b.reduce(Reduction::sum, x.view(), y); });
    }
  }
  for (int round = 0; round < 40; ++round) {
    const Dtype dtype = float_dtypes[round % 4];
    const Shape shape{between(random, 0, 5), between(random, 1, 40)}, one{shape[0], 1};
    const auto row_major = [&] { return random_tensor(random, shape, {0, 1}, dtype); };
    const Tensor x = row_major(), dy = row_major(), y = row_major();
    check_on_devices(unwritten(one, Dtype::i64),
                     [&](Backend& b, const View& at) { b.argmax(x.view(), at); });
    for (const bool choice : {false, true}) {
      const auto check_rows = [&](auto&& call) { check_on_devices(unwritten(shape, dtype), call); };
      check_rows([&](Backend& b, const View& to) { b.softmax(x.view(), choice, to); });
      check_rows(
          [&](Backend& b, const View& dx) { b.softmax_grad(y.view(), dy.view(), choice, dx); });
    }
  }
}

TEST_CASE("device code: rows are folded in packs where every row is aligned") {
  Random random(59);
  for (const Dtype dtype : float_dtypes) {
    dispatch_float(dtype, [&]<class T>(std::type_identity<T>) {
      constexpr int lanes = Row<T>::lanes;
      const std::int64_t width = 40 * lanes;
      const auto row_major = [&](std::int64_t columns) {
        return random_tensor(random, {3, columns}, {0, 1}, dtype);
      };
      const std::pair<Tensor, bool> cases[] = {
          {row_major(width), true},
          {row_major(width + lanes).slice(1, 0, width), true},
          {row_major(width + lanes).slice(1, lanes, width + lanes), true},
          {row_major(width + 1).slice(1, 0, width), false},
          {row_major(width + lanes).slice(1, 1, width + 1), false},
          {row_major(width + 1), false}};
      for (const auto& [x, packs] : cases) {
        const Tensor sums = unwritten({3, 1}, dtype);
        const Row<T> row(x.size(1), x.view().template as<T>());
        CHECK(packed_rows(ReductionPlan(x.view(), sums.view(), TermOrder::memory), row) == packs);
        for (const Reduction op : {Reduction::sum, Reduction::max, Reduction::min}) {
          check_on_devices(sums,
                           [&, x = x](Backend& b, const View& y) { b.reduce(op, x.view(), y); });
        }
      }
    });
  }
}

TEST_CASE("device code: inner products of per-sample gradients and weighted sums") {
  Random random(56);
  for (int round = 0; round < 60; ++round) {
    const Dtype dtype = float_dtypes[round % 4];
    const std::int64_t n = between(random, 0, 4), s = between(random, 1, 6),
                       t = round % 3 == 0 ? s : between(random, 1, 6), i = between(random, 1, 9),
                       o = between(random, 1, 9);
    const auto factor = [&](std::int64_t positions, std::int64_t width) {
      return random_tensor(random, {n, positions, width}, {0, 1, 2}, dtype);
    };
    const Tensor a1 = factor(s, i), a2 = factor(t, i), b1 = factor(s, o), b2 = factor(t, o);
    const auto dots = [&] { return unwritten({n}, Dtype::f64); };
    const auto flat = [&](const Tensor& x) { return reshape(x, {n, x.size(1) * x.size(2)}); };
    if (s == t) {
      const Tensor p = flat(a1), q = flat(a2);
      check_on_devices(dots(),
                       [&](Backend& b, const View& y) { b.row_dot(p.view(), q.view(), y); });
    }
    // check_close() is for results of 16-bit types; these are sums in double of products in float.
    const Tensor expected = dots(), got = dots();
    backend(cpu).gram_dot(a1.view(), b1.view(), a2.view(), b2.view(), expected.view());
    for_each_device_code([&] {
      backend(cpu).gram_dot(a1.view(), b1.view(), a2.view(), b2.view(), got.view());
      for (std::int64_t k = 0; k < n; ++k) {
        const double e = expected.select(0, k).item();
        CHECK(got.select(0, k).item() == Approx(e).epsilon(1e-5).margin(1e-7));
      }
    });
    const auto draw_ids = [&](std::int64_t positions) {
      const Tensor ids = fill(Tensor::empty({n, positions}, Dtype::f64),
                              [&] { return static_cast<double>(between(random, -1, 3)); });
      return to_dtype(ids, Dtype::i64);
    };
    const Tensor ids1 = draw_ids(s), ids2 = draw_ids(t);
    // Every other round has one row for all positions.
    const Tensor rows1 = round % 2 == 0 ? b1 : contiguous(b1.slice(1, 0, 1));
    check_on_devices(dots(), [&](Backend& b, const View& y) {
      b.onehot_dot(ids1.view(), rows1.view(), ids2.view(), b2.view(), y);
    });
    check_on_devices(dots(), [&](Backend& b, const View& y) {
      b.onehot_dot(ids1.view(), rows1.view(), ids1.view(), rows1.view(), y);
    });
    const Tensor x = flat(a1), w = random_tensor(random, {n}, Dtype::f32);
    if (n > 0) set_value(w, 0, 0);
    for (const double beta : {0.0, 0.5}) {
      const Dtype into = round % 8 < 4 ? dtype : arithmetic_type(dtype);
      check_on_devices(
          beta == 0 ? unwritten({s * i}, into) : random_tensor(random, {s * i}, into),
          [&](Backend& b, const View& y) { b.weighted_sum(x.view(), w.view(), beta, y); });
    }
  }
}

TEST_CASE("device code: a Gram sum that cancels is recomputed in f64") {
  // Two positions whose gradients nearly cancel.
  const Tensor a = Tensor::from({1, 2, 1, 2.0001}, {1, 2, 2}, Dtype::f32);
  const Tensor b = Tensor::from({1, -1, -1, 1}, {1, 2, 2}, Dtype::f32);
  const Tensor expected = unwritten({1}, Dtype::f64), got = unwritten({1}, Dtype::f64);
  backend(cpu).gram_dot(a.view(), b.view(), a.view(), b.view(), expected.view());
  for_each_device_code([&] {
    backend(cpu).gram_dot(a.view(), b.view(), a.view(), b.view(), got.view());
    CHECK(got.item() == Approx(expected.item()).epsilon(1e-12));
    CHECK(got.item() == Approx(2 * std::pow(double{2.0001f} - 2, 2)).epsilon(1e-6));
  });
}

TEST_CASE("device code: a row with weight zero is not read") {
  for_each_device_code([] {
    const Tensor x = Tensor::from({1, 2, std::nan(""), 4}, {2, 2}, Dtype::f32), y = zeros({2});
    const Tensor w = Tensor::from({1, 0}, {2}, Dtype::f32);
    backend(cpu).weighted_sum(x.view(), w.view(), 0, y.view());
    CHECK(values(y) == std::vector<double>{1, 2});
  });
}
