// Normalisation by every engine, against its formula, in every layout.
// File tags: [gpu][optimised][sanitized][simd]
#include <cmath>

#include "kernels/host_device/norm_formulas.h"
#include "tests/support/kernel_cases.h"

using namespace sotto;

namespace {

// Arrays [n, t, groups, channels, places], row-major or with the channels last, and what the
// formula makes of them.
struct Problem {
  Shape shape;
  bool last, shared;  // x repeats one sample
  NormRule rule;
  Tensor x, dy, weight, bias;
  std::vector<double> y, dx, dweight, dbias;

  // x has the type `dtype`; y and dy have `result`.
  Problem(Random& random, Dtype dtype, const Shape& shape, double offset, Dtype result)
      : shape(shape),
        last(random() % 2 == 0 && (dtype == result || shape[4] == 1)),
        shared(random() % 4 == 0),
        rule{.eps = 1e-3, .centered = random() % 3 != 0} {
    Shape own = shape;
    if (shared) own[0] = 1;
    const Dtype wide = arithmetic_type(dtype);
    x = add(random_tensor(random, own, order(), dtype), full({}, offset, dtype));
    dy = random_tensor(random, shape, order(), result);
    const Shape channels{shape[2] * shape[3]};
    if (random() % 3 != 0) weight = random_tensor(random, channels, wide);
    if (random() % 3 != 0) bias = random_tensor(random, channels, wide);
    solve();
  }
  Problem(Random& random, Dtype dtype, const Shape& shape, double offset)
      : Problem(random, dtype, shape, offset, dtype) {}

  Shape order() const { return last ? Shape{0, 1, 4, 2, 3} : Shape{0, 1, 2, 3, 4}; }
  std::size_t channels() const { return static_cast<std::size_t>(shape[2] * shape[3]); }
  View x_view() const { return repeated(x.view()); }
  View repeated(View v) const {
    v.size[0] = shape[0];
    if (shared) v.stride[0] = 0;
    return v;
  }
  Normalization how() const {
    const auto view = [](const Tensor& v) { return v.defined() ? v.view() : View{}; };
    return {rule, view(weight), view(bias)};
  }

 private:
  void solve() {
    const std::vector<double> a = values(x.expand(shape)), d = values(dy);
    const std::size_t all = a.size(), width = channels();
    y.resize(all), dx.resize(all);
    dweight.resize(static_cast<std::size_t>(shape[0]) * width);
    dbias = dweight;
    const std::vector<double> w = weight.defined() ? values(weight) : std::vector(width, 1.0),
                              b = bias.defined() ? values(bias) : std::vector(width, 0.0);
    const auto group = static_cast<std::size_t>(shape[3]),
               places = static_cast<std::size_t>(shape[4]), count = group * places,
               groups = static_cast<std::size_t>(shape[2]),
               blocks = static_cast<std::size_t>(shape[1]);
    for (std::size_t first = 0; first < all; first += count) {
      const std::size_t k = first / count % groups, n = first / (count * groups * blocks);
      const auto mean_of = [&](auto&& term) {
        double sum = 0;
        for (std::size_t i = 0; i < count; ++i) sum += term(first + i, k * group + i / places);
        return sum / static_cast<double>(count);
      };
      using At = std::size_t;
      const double mean = rule.centered ? mean_of([&](At i, At) { return a[i]; }) : 0;
      const double variance = mean_of([&](At i, At) { return (a[i] - mean) * (a[i] - mean); });
      const double r = 1 / std::sqrt(variance + rule.eps);
      const auto z = [&](At i) { return (a[i] - mean) * r; };
      const double slope = rule.centered ? mean_of([&](At i, At c) { return d[i] * w[c]; }) : 0;
      const double product = mean_of([&](At i, At c) { return d[i] * w[c] * z(i); });
      for (At i = first; i < first + count; ++i) {
        const At c = k * group + (i - first) / places;
        y[i] = z(i) * w[c] + b[c];
        dx[i] = r * (d[i] * w[c] - slope - z(i) * product);
        dbias[n * width + c] += d[i];
        dweight[n * width + c] += d[i] * z(i);
      }
    }
  }
};

void check_on(Backend& engine, const Problem& p) {
  const Dtype dtype = p.x.dtype(), result = p.dy.dtype(), wide = arithmetic_type(dtype);
  const Tensor y = unwritten(p.shape, p.order(), result), dx = unwritten(p.shape, p.order(), dtype),
               stats = unwritten({p.x.size(0), p.shape[1], p.shape[2], 2, 1}, Dtype::f64);
  const View of_stats = p.repeated(stats.view());
  if (!p.shared) {
    engine.normalize(p.how(), p.x.view(), stats.view(), y.view());
    check_close(y, p.y);
  } else {
    const Tensor one = unwritten(p.x.shape(), p.order(), result);
    engine.normalize(p.how(), p.x.view(), stats.view(), one.view());
    check_close(one.expand(p.shape), p.y);
  }
  const Shape rows{p.shape[0], p.shape[2] * p.shape[3]};
  const Tensor dweight = unwritten(rows, wide), dbias = unwritten(rows, wide);
  engine.normalize_grad(p.how(), p.x_view(), of_stats, p.dy.view(),
                        {dx.view(), dweight.view(), dbias.view()});
  check_close(dx, p.dx);
  check_close(dweight, p.dweight);
  check_close(dbias, p.dbias);
  // Each alone has the same bits; dx may be dy.
  const Tensor over = dtype == result ? clone(p.dy) : unwritten(p.shape, p.order(), dtype),
               alone = unwritten(rows, wide);
  engine.normalize_grad(p.how(), p.x_view(), of_stats, dtype == result ? over.view() : p.dy.view(),
                        {over.view(), {}, {}});
  CHECK(same_bits(over, dx));
  engine.normalize_grad(p.how(), p.x_view(), of_stats, p.dy.view(), {{}, alone.view(), {}});
  CHECK(same_bits(alone, dweight));
  engine.normalize_grad(p.how(), p.x_view(), of_stats, p.dy.view(), {{}, {}, alone.view()});
  CHECK(same_bits(alone, dbias));
}

}  // namespace

TEST_CASE("normalisation and its gradients are those of the formula") {
  Random random(91);
  for (int round = 0; round < 80; ++round) {
    const bool packs = round % 3 == 0;
    const Shape shape{between(random, 1, 3), between(random, 1, round % 2 == 0 ? 2 : 40),
                      packs ? 2 : between(random, 1, 3), packs ? 8 : between(random, 1, 5),
                      round % 4 < 2 ? 1 : between(random, 1, 40)};
    const bool mixed = round % 5 == 0;
    const Dtype result = float_dtypes[mixed ? 2 + round % 2 : round / 2 % 4];
    const Problem problem(random, mixed ? Dtype::f32 : result, shape, 0, result);
    INFO(name(problem.x.dtype()) << " to " << name(result) << (problem.last ? " last" : ""));
    for_each_engine([&](Backend& engine) { check_on(engine, problem); });
  }
}

TEST_CASE("normalisation of many blocks is summed in parts, each sample as alone", "[gate]") {
  Random random(93);
  const Shape shapes[] = {{3, 200, 1, 512, 1}, {2, 2, 3, 40, 600}};
  for (const Shape& shape : shapes) {
    const Problem problem(random, Dtype::f32, shape, 0);
    for_each_engine([&](Backend& engine) { check_on(engine, problem); });
    const std::int64_t width = shape[2] * shape[3];
    const auto gradients = [&](std::int64_t first, std::int64_t last) {
      const Tensor x = problem.shared ? problem.x : problem.x.slice(0, first, last),
                   dy = problem.dy.slice(0, first, last),
                   stats = unwritten({x.size(0), shape[1], shape[2], 2, 1}, Dtype::f64),
                   y = unwritten(x.shape(), problem.order(), Dtype::f32),
                   rows = unwritten({2, last - first, width}, Dtype::f32);
      Problem part = problem;
      part.shape[0] = last - first;
      backend(cpu).normalize(part.how(), x.view(), stats.view(), y.view());
      backend(cpu).normalize_grad(part.how(), part.repeated(x.view()), part.repeated(stats.view()),
                                  dy.view(),
                                  {{}, rows.select(0, 0).view(), rows.select(0, 1).view()});
      return rows;
    };
    const Tensor together = gradients(0, shape[0]);
    for (std::int64_t n = 0; n < shape[0]; ++n)
      CHECK(same_bits(gradients(n, n + 1), together.slice(1, n, n + 1)));
  }
}

TEST_CASE("a mean far from zero takes no digits of the variance") {
  Random random(92);
  for (int round = 0; round < 8; ++round) {
    const Problem problem(random, Dtype::f64, {2, 2, 2, 4, round % 2 == 0 ? 1 : 9}, 1e9);
    if (!problem.rule.centered) continue;
    for_each_engine([&](Backend& engine) {
      const Tensor y = unwritten(problem.x.shape(), problem.order(), Dtype::f64),
                   stats = unwritten({problem.x.size(0), 2, 2, 2, 1}, Dtype::f64);
      engine.normalize({problem.rule, {}, {}}, problem.x.view(), stats.view(), y.view());
      // Of x there are 23 bits behind the point.
      const Tensor squares = sum(mul(y, y), {3, 4}, true);
      for (const double square : values(squares))
        CHECK(square / static_cast<double>(4 * problem.shape[4]) == Approx(1).epsilon(0.02));
    });
  }
}
