// The laws that every operation on the tape obeys, on random cases of each. Seeds are fixed.
#include <algorithm>
#include <set>

#include "tests/kernel_cases.h"
#include "tests/op_runner.h"

using namespace sotto;

namespace {

constexpr int instances = 24;

std::vector<OpCase> engine_cases() {
  std::vector<OpCase> cases;
  add_product_cases(cases);
  add_image_cases(cases);
  return cases;
}

// Calls f(instance, random) for random instances of every case, and of those whose work engines do
// differently on every engine of the CPU.
template <class F>
void for_each_instance(F&& f) {
  std::vector<OpCase> cases = op_cases();
  for_each_engine([&](Backend&) {
    std::uint64_t stream = 0;
    for (const OpCase& one : std::exchange(cases, engine_cases())) {
      PublicRandom random(2024, stream++);
      for (int i = 0; i < instances; ++i) {
        const Instance instance = with_loss(one.make(random), random);
        std::string shapes;
        for (const OpInput& x : instance.inputs) {
          shapes +=
              fmt::format(" {}@{}", x.value.shape(), x.samples.batched() ? x.samples.axis() : -1);
        }
        INFO(one.op << ", " << one.what << ", instance " << i << ":" << shapes);
        f(instance, random);
      }
    }
  });
}

double total_loss(const Instance& instance) {
  const std::vector<double> losses = values(run_case(instance, Dtype::f64).losses);
  double sum = 0;
  for (const double loss : losses) sum += loss;
  return sum;
}

// Sum of products; both in row-major order.
double inner(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = values(a), y = values(b);
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

// The derivative of the total loss with input i moving along `direction`.
double difference_quotient(Instance instance, std::size_t i, const Tensor& direction) {
  constexpr double step = 1e-6;
  const Tensor x = instance.inputs[i].value;
  instance.inputs[i].value = add(x, scale(direction, step));
  const double above = total_loss(instance);
  instance.inputs[i].value = sub(x, scale(direction, step));
  return (above - total_loss(instance)) / (2 * step);
}

// Within `factor` tolerances of the dtype of y, relative to the largest expected value.
void check_near(const Tensor& y, const Tensor& expected, double factor) {
  REQUIRE(y.shape() == expected.shape());
  const std::vector<double> got = values(y), wanted = values(expected);
  double largest = 1, difference = 0;
  for (std::size_t k = 0; k < got.size(); ++k) {
    largest = std::max(largest, std::abs(wanted[k]));
    const double here = std::abs(got[k] - wanted[k]);
    difference = here <= difference ? difference : here;
  }
  CHECK(difference <= factor * tolerance(y.dtype()) * largest);
}

// A copy of the instance with sample n of every floating-point batched input replaced.
Instance with_sample(const Instance& instance, std::int64_t n,
                     const std::function<double()>& value) {
  Instance changed = instance;
  for (OpInput& input : changed.inputs) {
    if (!input.samples.batched() || !is_float(input.value.dtype())) continue;
    input.value = clone(input.value);
    fill(input.value.slice(input.samples.axis(), n, n + 1), value);
  }
  return changed;
}

// Everything that belongs to one sample has the same bits in both runs.
void check_same_sample(const OpRun& a, const OpRun& b, const Instance& instance, std::int64_t n) {
  const auto row = [n](const Tensor& x, int axis = 0) { return x.slice(axis, n, n + 1); };
  CHECK(same_bits(row(a.losses), row(b.losses)));
  for (std::size_t i = 0; i < a.uses.size(); ++i) {
    if (!a.uses[i].empty())
      CHECK(same_bits(row(rows_of_uses(a.uses[i])), row(rows_of_uses(b.uses[i]))));
    if (!a.grads[i].defined()) continue;
    const int axis = instance.inputs[i].samples.axis();
    CHECK(same_bits(row(a.grads[i], axis), row(b.grads[i], axis)));
  }
  const bool batched = std::any_of(instance.inputs.begin(), instance.inputs.end() - 1,
                                   [](const OpInput& x) { return x.samples.batched(); });
  if (batched) CHECK(same_bits(row(a.output), row(b.output)));
}

}  // namespace

TEST_CASE("every registered operation has a case, and every case a registered operation") {
  std::set<std::string> cases;
  for (const OpCase& one : op_cases()) cases.insert(one.op);
  std::set<std::string> registered;
  for (const char* op : registered_ops()) registered.insert(op);
  CHECK(cases == registered);
  CHECK(registered.size() == registered_ops().size());
}

TEST_CASE("gradients of batched and shared inputs agree with difference quotients") {
  for_each_instance([](const Instance& instance, PublicRandom& random) {
    const OpRun run = run_case(instance, Dtype::f64);
    for (std::size_t i = 0; i + 1 < instance.inputs.size(); ++i) {
      const OpInput& input = instance.inputs[i];
      if (!input.wants_grad) continue;
      INFO("input " << i);
      const Tensor direction = uniform_values(random, input.value.shape(), -1, 1);
      double expected = 0;
      if (input.samples.batched()) expected = inner(run.grads[i], direction);
      for (const PerSample& use : run.uses[i]) expected += inner(use.sum(), direction);
      // Truncation is 1e-12 of third derivatives, rounding 1e-10 of the loss.
      constexpr double accuracy = 2e-7;
      const double found = difference_quotient(instance, i, direction);
      CHECK(std::abs(found - expected) <= accuracy * (1 + std::abs(expected)));
    }
  });
}

TEST_CASE("a sample's output and gradients are those of running it alone") {
  for_each_instance([](const Instance& instance, PublicRandom& random) {
    const OpRun run = run_case(instance, Dtype::f64);
    const std::int64_t n = random.below(samples_of(instance));
    const OpRun alone = run_case(sample_of(instance, n), Dtype::f64, n);
    check_near(run.losses.slice(0, n, n + 1), alone.losses, 1);
    for (std::size_t i = 0; i < run.uses.size(); ++i) {
      REQUIRE(run.uses[i].empty() == alone.uses[i].empty());
      if (!run.uses[i].empty())
        check_near(rows_of_uses(run.uses[i]).slice(0, n, n + 1), rows_of_uses(alone.uses[i]), 1);
      if (!run.grads[i].defined()) continue;
      const int axis = instance.inputs[i].samples.axis();
      check_near(run.grads[i].slice(axis, n, n + 1), alone.grads[i], 1);
    }
  });
}

TEST_CASE("what other samples hold, NaN and infinity included, changes no bit of a sample") {
  for_each_instance([](const Instance& instance, PublicRandom& random) {
    const std::int64_t n = samples_of(instance);
    if (n < 2) return;
    const std::int64_t kept = random.below(n);
    const std::int64_t other = (kept + 1 + random.below(n - 1)) % n;
    const std::vector<std::function<double()>> changes{
        [&] { return random.uniform(); }, [] { return std::nan(""); }, [] { return HUGE_VAL; },
        [] { return 1e30; }};
    for (const Dtype dtype : {Dtype::f64, Dtype::f32}) {
      const OpRun before = run_case(instance, dtype);
      for (const auto& change : changes) {
        check_same_sample(before, run_case(with_sample(instance, other, change), dtype), instance,
                          kept);
      }
    }
  });
}

TEST_CASE("what is emitted to a parameter obeys the laws of per-sample gradients") {
  for_each_instance([](const Instance& instance, PublicRandom& random) {
    const OpRun run = run_case(instance, Dtype::f64);
    for (const std::vector<PerSample>& uses : run.uses) {
      for (const PerSample& f : uses) {
        const Tensor rows = f.materialize();
        REQUIRE(f.samples() == samples_of(instance));
        const Tensor w = uniform_values(random, {f.samples()}, -1, 1);
        Shape column = Shape::filled(rows.rank(), 1);
        column[0] = f.samples();
        check_near(f.sum(w), sum(mul(rows, reshape(w, column)), {0}), 1);
        check_near(f.sum(), sum(rows, {0}), 1);
        for (const PerSample& g : uses) {
          const Shape flat{f.samples(), f.shape().numel()};
          const Tensor expected =
              sum(mul(reshape(rows, flat), reshape(g.materialize(), flat)), {1});
          // A Gram product sums as many terms as there are pairs of positions.
          constexpr double factor = 8;
          for (const Route route : {Route::automatic, Route::gram, Route::rows}) {
            check_near(dot(f, g, route), expected, factor);
          }
        }
      }
    }
  });
}

TEST_CASE("float agrees with double") {
  for_each_instance([](const Instance& instance, PublicRandom&) {
    const OpRun wide = run_case(instance, Dtype::f64);
    const OpRun run = run_case(instance, Dtype::f32);
    // An op may be several kernels, and a quotient or a root multiplies errors.
    constexpr double factor = 16;
    check_near(run.output, wide.output, factor);
    for (std::size_t i = 0; i < run.uses.size(); ++i) {
      if (!run.uses[i].empty())
        check_near(rows_of_uses(run.uses[i]), rows_of_uses(wide.uses[i]), factor);
      if (run.grads[i].defined()) check_near(run.grads[i], wide.grads[i], factor);
    }
  });
}

TEST_CASE("elementwise operations run in half precision") {
  std::vector<OpCase> cases;
  add_elementwise_cases(cases);
  for (const OpCase& one : cases) {
    PublicRandom random(77);
    for (int i = 0; i < instances; ++i) {
      Instance instance = with_loss(one.make(random), random);
      for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
        for (OpInput& x : instance.inputs) x.value = to_dtype(to_dtype(x.value, dtype), Dtype::f64);
        INFO(one.op << " in " << name(dtype));
        check_near(run_case(instance, dtype).output, run_case(instance, Dtype::f64).output, 1);
      }
    }
  }
}
