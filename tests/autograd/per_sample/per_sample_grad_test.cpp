// The arithmetic of per-sample gradients against materialized gradients and loops.
// File tags: [engine][sanitized]
#include "autograd/per_sample/per_sample_grad.h"
#include "core/allocator/allocator.h"
#include "core/random/philox.h"
#include "kernels/tf32.h"
#include "tests/support/per_sample_uses.h"
#include "tests/support/throws.h"

using namespace sotto;

TEST_CASE("materialized gradients are the sums that the forms define") {
  PublicRandom random(3);
  const Tensor b = uniform_values(random, {2, 3, 4}), a = uniform_values(random, {2, 3, 5});
  const std::vector<double> bs = values(b), as = values(a);
  std::vector<double> outer(2 * 4 * 5, 0.0), onehot(2 * 2 * 4, 0.0);
  const std::vector<std::int64_t> ids{1, 1, -1, 0, 1, 0};
  for (std::size_t n = 0; n < 2; ++n) {
    for (std::size_t t = 0; t < 3; ++t) {
      for (std::size_t o = 0; o < 4; ++o) {
        const double value = bs[(n * 3 + t) * 4 + o];
        for (std::size_t i = 0; i < 5; ++i)
          outer[(n * 4 + o) * 5 + i] += value * as[(n * 3 + t) * 5 + i];
        const std::int64_t id = ids[n * 3 + t];
        if (id >= 0) onehot[(n * 2 + static_cast<std::size_t>(id)) * 4 + o] += value;
      }
    }
  }
  check_close(PerSampleGrad::outer(b, a, {4, 5}).materialize(), outer);
  check_close(PerSampleGrad::outer(b, a, {2, 2, 5}).materialize(), outer);
  check_close(PerSampleGrad::onehot(Tensor::from(ids, {2, 3}), b, {2, 4}).materialize(), onehot);
  const Tensor first = b.slice(1, 0, 1), all = first.expand({2, 3, 4});
  const auto row = PerSampleGrad::onehot(Tensor::from(ids, {2, 3}), contiguous(all), {2, 4});
  for (const Tensor& same : {first, all}) {
    const auto f = PerSampleGrad::onehot(Tensor::from(ids, {2, 3}), same, {2, 4});
    check_close(f.materialize(), row.materialize().to_vector<double>());
  }
}

TEST_CASE("inner products by every method are those of materialized gradients", "[gate]") {
  for_each_engine([&](Backend&) {
    PublicRandom random(32);
    for (int i = 0; i < 4 * per_sample_cases; ++i) {
      const auto [f, g] = random_pair(random);
      INFO(f.form() << " and " << g.form() << ", " << f.samples() << " samples of "
                    << to_string(f.shape()));
      for (const NormMethod norm_method : norm_methods) {
        check_close(dot(f, g, norm_method), products(rows_of(f), rows_of(g)));
        check_close(dot(g, f, norm_method), products(rows_of(f), rows_of(g)));
        check_close(dot(f, f, norm_method), products(rows_of(f), rows_of(f)));
        const PerSampleGrad both =
            PerSampleGrad::materialized(add(f.materialize(), g.materialize()));
        check_close(squared_norm({f, g}, norm_method), products(rows_of(both), rows_of(both)));
      }
    }
  });
}

TEST_CASE("sums are those of materialized gradients, weighted or not") {
  for_each_use([](const PerSampleGrad& f, PublicRandom& random) {
    const std::int64_t width = f.shape().numel();
    std::vector<double> w;
    for (std::int64_t n = 0; n < f.samples(); ++n)
      w.push_back(one_in(random, 3) ? 0 : random.uniform() - 0.5);
    const Tensor weights = Tensor::from(w, {f.samples()});
    CHECK(f.sum().shape() == f.shape());
    CHECK(f.sum(weights).shape() == f.shape());
    check_close(f.sum(), weighted(rows_of(f), std::vector<double>(w.size(), 1.0), width));
    check_close(f.sum(weights), weighted(rows_of(f), w, width));
    check_close(
        f.materialize_if_cheaper(NormMethod::materialize, std::size_t{1} << 30).sum(weights),
        weighted(rows_of(f), w, width));
    CHECK_THROWS_AS(f.sum(Tensor::from(std::vector<double>(w.size() + 1), {f.samples() + 1})),
                    std::invalid_argument);
  });
}

TEST_CASE("scaled rows equal scaled elements to the bit") {
  PublicRandom random(31);
  for (const Shape& shape : {Shape{5, 3}, {1, 7}, {4, 1, 50}, {3, 2, 200}, {0, 4}, {2, 1}}) {
    for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
      const std::int64_t n = shape[0], width = n == 0 ? 0 : shape.numel() / n;
      Shape one = Shape::filled(shape.rank(), 1);
      one[0] = n;
      const Tensor x = to_dtype(uniform_values(random, shape, -1, 1), dtype);
      const Tensor w = to_dtype(uniform_values(random, one, -1, 1), dtype);
      const std::vector<double> from = values(x), by = values(w), got = values(mul(x, w));
      for (std::int64_t i = 0; i < n * width; ++i) {
        const double exact =
            from[static_cast<std::size_t>(i)] * by[static_cast<std::size_t>(i / width)];
        CHECK(got[static_cast<std::size_t>(i)] ==
              (dtype == Dtype::f32 ? double{static_cast<float>(exact)} : exact));
      }
    }
  }
}

TEST_CASE("a slice holds its own samples only") {
  for_each_use([](const PerSampleGrad& f, PublicRandom& random) {
    const std::int64_t begin = draw(random, 0, f.samples()), end = draw(random, begin, f.samples());
    const PerSampleGrad part = f.slice(begin, end);
    CHECK(part.samples() == end - begin);
    check_close(part.materialize(), values(f.materialize().slice(0, begin, end)));
    check_close(dot(part, part, NormMethod::ghost),
                values(dot(f, f, NormMethod::ghost).slice(0, begin, end)));
  });
}

TEST_CASE("a sample of weight zero adds exactly zero, whatever its values") {
  for (const auto make : {random_outer, random_onehot, random_dense, random_patches}) {
    for (const Dtype dtype : {Dtype::f64, Dtype::f32}) {
      const auto with = [&](double mark) {
        PublicRandom random(8);
        return make(
            random,
            {.n = 4, .o = 3, .i = 2, .groups = 2, .dtype = dtype, .marked = 2, .mark = mark});
      };
      const Tensor weights = Tensor::from({0.5, -1, 0, 2}, {4}, Dtype::f64);
      const Grouping grouping{.unit_of_row = {1, 0, -1, 1}, .units = 2};
      const PerSampleGrad clean = with(1);
      for (const double mark : {std::nan(""), HUGE_VAL, 1e30}) {
        const PerSampleGrad f = with(mark);
        INFO(f.form() << " holding " << mark);
        CHECK(same_bits(f.sum(weights), clean.sum(weights)));
        const PerSampleGrad rows =
            f.materialize_if_cheaper(NormMethod::materialize, std::size_t{1} << 20);
        CHECK(same_bits(rows.sum(weights),
                        clean.materialize_if_cheaper(NormMethod::materialize, std::size_t{1} << 20)
                            .sum(weights)));
        CHECK(same_bits(f.group(grouping).materialize(), clean.group(grouping).materialize()));
        for (const NormMethod norm_method : norm_methods) {
          const std::vector<double> norms = values(dot(f, f, norm_method)),
                                    expected = values(dot(clean, clean, norm_method));
          CHECK(norms[0] == expected[0]);
          CHECK(norms[1] == expected[1]);
          CHECK(norms[3] == expected[3]);
          CHECK((std::isfinite(mark) || !std::isfinite(norms[2])));
        }
      }
    }
  }
}

TEST_CASE("factors that do not fit their shape are refused") {
  const Tensor b = zeros({2, 3, 4}), a = zeros({2, 3, 5});
  CHECK(throws(
      [&] {
        PerSampleGrad::outer(b, a, {4, 4});
      },
      "PerSampleGrad::outer: factors (2, 3, 4) and (2, 3, 5)"));
  CHECK(throws([&] { PerSampleGrad::outer(b, zeros({2, 2, 5}), {4, 5}); }, "PerSampleGrad::outer"));
  CHECK(throws([&] { PerSampleGrad::materialized(zeros({})); }, "no sample axis"));
  const PerSampleGrad f = PerSampleGrad::outer(b, a, {4, 5});
  CHECK(throws([&] { dot(f, f.slice(0, 1)); }, "dot: 2 samples"));
  CHECK(throws([&] { squared_norm({}); }, "without a use"));
}

TEST_CASE("outer products with different factors of one shape are multiplied materialized") {
  PublicRandom random(4);
  const PerSampleGrad f = PerSampleGrad::outer(uniform_values(random, {3, 2, 2}),
                                               uniform_values(random, {3, 2, 6}), {2, 2, 3});
  const PerSampleGrad g = PerSampleGrad::outer(uniform_values(random, {3, 4, 4}),
                                               uniform_values(random, {3, 4, 3}), {2, 2, 3});
  for (const NormMethod norm_method : norm_methods)
    check_close(dot(f, g, norm_method), products(rows_of(f), rows_of(g)));
}

// Two uses of one weight may cancel so far that a difference of inner products has no digits left.
TEST_CASE("norms of uses that cancel each other are those of the sum") {
  for_each_engine([&](Backend&) {
    PublicRandom random(37);
    for (const double rest : {1.0, 1e-3, 1e-6, 0.0}) {
      const Common c{.n = 3, .o = 4, .i = 5};
      const Tensor a = random_factor(random, c, {3, 5}), b = random_factor(random, c, {3, 4});
      const Tensor small = scale(random_factor(random, c, {3, 4}), rest);
      const PerSampleGrad f = PerSampleGrad::outer(b, a, {4, 5});
      const PerSampleGrad g = PerSampleGrad::outer(add(scale(b, -1), small), a, {4, 5});
      const auto expected = rows_of(PerSampleGrad::outer(small, a, {4, 5}));
      for (const NormMethod norm_method : norm_methods) {
        const std::vector<double> norms = values(squared_norm({f, g}, norm_method));
        for (std::size_t n = 0; n < norms.size(); ++n) {
          INFO("what is left: " << rest);
          CHECK(norms[n] == Approx(products(expected, expected)[n]).epsilon(1e-8).margin(1e-28));
        }
      }
    }
  });
}

// Otherwise a long sample would lower the clip factors of all others in its batch.
TEST_CASE("padding positions add nothing to rounding error bounds") {
  PublicRandom random(38);
  const Common c{.n = 3, .o = 4, .i = 6};
  const Tensor b = random_factor(random, c, {5, 4}), a = random_factor(random, c, {5, 6});
  const auto bounds_of = [](const Tensor& grads, const Tensor& inputs) {
    NormErrorBounds bounds;
    squared_norm({PerSampleGrad::outer(grads, inputs, {4, 6})}, NormMethod::ghost, &bounds);
    return bounds;
  };
  const NormErrorBounds own = bounds_of(b, a);
  const Tensor none = zeros({3, 900, 4}, b.dtype()), any = full({3, 900, 6}, 1, a.dtype());
  const NormErrorBounds padded = bounds_of(concat({b, none}, 1), concat({a, any}, 1));
  for (std::size_t n = 0; n < 3; ++n) {
    CHECK(own.error_bounds[n] > 0);
    CHECK(padded.error_bounds[n] == Approx(own.error_bounds[n]).epsilon(1e-6));
    CHECK(own.term_norms[n] > 0);
    CHECK(padded.term_norms[n] == Approx(own.term_norms[n]).epsilon(1e-12));
  }
}

// The choice between both depends on the longest sample of a batch.
TEST_CASE("materialized gradients have the rounding error bounds of their factors") {
  PublicRandom random(39);
  const Common c{.n = 3, .o = 4, .i = 6};
  const auto use = [&] {
    return PerSampleGrad::outer(random_factor(random, c, {20, 4}),
                                random_factor(random, c, {20, 6}), {4, 6});
  };
  const auto bounds_of = [](const std::vector<PerSampleGrad>& uses) {
    NormErrorBounds bounds;
    squared_norm(uses, NormMethod::automatic, &bounds);
    return bounds;
  };
  const auto check_same = [&](const std::vector<PerSampleGrad>& a,
                              const std::vector<PerSampleGrad>& b) {
    const NormErrorBounds x = bounds_of(a), y = bounds_of(b);
    REQUIRE(x.error_bounds.size() == y.error_bounds.size());
    for (std::size_t n = 0; n < x.error_bounds.size(); ++n) {
      CHECK(x.error_bounds[n] > 0);
      CHECK(x.error_bounds[n] == Approx(y.error_bounds[n]).epsilon(1e-9));
      CHECK(x.term_norms[n] >= y.term_norms[n] * (1 - 1e-12));  // larger for units of several rows
    }
  };
  const PerSampleGrad f = use(), g = use(),
                      kept = f.materialize_if_cheaper(NormMethod::materialize, 1 << 20);
  CHECK(kept.form() == std::string_view("dense"));
  check_same({kept}, {f});
  CHECK(f.smallest_form().form() == std::string_view("dense"));
  check_same({f.smallest_form(), g.smallest_form()}, {f, g});
  check_same({f.smallest_form().with_rows(g.smallest_form())}, {f, g});
  check_same({f.smallest_form().reshaped({6, 4}).permuted({1, 0})}, {f});
  const Grouping grouping{.unit_of_row = {0, 1, 0}, .units = 2};
  check_same({f.smallest_form().group(grouping)}, {f.group(grouping)});
  check_same({f.smallest_form().slice(1, 3)}, {f.slice(1, 3)});
  check_same(
      {PerSampleGrad::captured_prefix(std::make_shared<const PerSampleGrad>(f.smallest_form()), 2)},
      {f.slice(0, 2)});
}

TEST_CASE("materialized gradients and sums use unrounded factors on every device") {
  for_each_use([](const PerSampleGrad& use, PublicRandom&) {
    Backend& engine = backend(cpu);
    int calls = 0, rounded = 0;
    const auto watched = make_device_code(cpu, engine, [&](auto) {
      ++calls;
      rounded += NoTf32Scope::wanted() ? 0 : 1;
      return nullptr;
    });
    const Tensor weights = full({use.samples()}, 0.5, Dtype::f64);
    set_cpu_backend(*watched);
    use.materialize(), use.sum(), use.sum(weights);
    set_cpu_backend(engine);
    CHECK(calls > 0);
    CHECK(rounded == 0);
    CHECK_FALSE(NoTf32Scope::wanted());
  });
}

TEST_CASE("a weighted sum needs little memory beside the factors and the sum") {
  constexpr std::int64_t n = 8192, width = 256;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const PerSampleGrad use = PerSampleGrad::outer(full({n, 1, width}, 1, dtype),
                                                   full({n, 1, width}, 0.5, dtype), {width, width});
    const Tensor weights = full({n}, 0.25, Dtype::f64);
    const MemoryStatistics before = allocator(cpu).statistics();
    allocator(cpu).reset_peak();
    const Tensor sum = use.sum(weights);
    // In f32 the factors take 16 MiB.
    const std::size_t room = sum.bytes() + (std::size_t{3} << 19);
    CHECK(allocator(cpu).statistics().peak <= before.current + room);
    CHECK(sum.select(0, 0).select(0, 0).item() == n * 0.125);
  }
}

// The L2 distance of a table's rounded sum from what two samples of `positions` positions add up
// to, if all have the same id and a part of a spacing.
double lost_by_rounding(std::int64_t positions, bool shared_vector) {
  constexpr double spacing = 0x1p-20, part = 0.4;
  constexpr std::int64_t rows = 4, width = 8;
  const Tensor ids = zeros({2, positions}, Dtype::i64);
  const Tensor b = full({2, shared_vector ? 1 : positions, width}, part * spacing, Dtype::f32);
  const RoundedSum sum{zeros({rows, width}, Dtype::f64), spacing};
  PerSampleGrad::onehot(ids, b, {rows, width}).add_to(sum, full({2}, 1), {});
  const double expected = 2 * part * spacing * static_cast<double>(positions);
  const auto got = sum.total.to_vector<double>();
  for (std::size_t k = width; k < got.size(); ++k) CHECK(got[k] == 0);
  return std::abs(got[0] - expected) * std::sqrt(width);
}

TEST_CASE("many positions of a table that round alike move a sum by little") {
  const double limit = 128 * 0x1p-20 * std::sqrt(4 * 8);  // of each sample
  for (const bool shared_vector : {false, true}) {
    CHECK(lost_by_rounding(500, shared_vector) > limit);
    for (const std::int64_t positions : {500, 512, 513, 100'000})
      CHECK(lost_by_rounding(positions, shared_vector) <= 2 * limit);
  }
}
