// Connectionist temporal classification (CTC) against the sum over all paths.
#include "autograd/ops/loss/ctc.h"
#include "autograd/ops/reductions.h"
#include "autograd/sink.h"
#include "core/random/philox.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/op_cases.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

using Labels = std::vector<std::int64_t>;

// The labels of a path: repetitions merged, then blanks removed.
Labels spelled(const Labels& path, std::int64_t blank) {
  Labels labels;
  for (std::size_t t = 0; t < path.size(); ++t) {
    if (path[t] != blank && (t == 0 || path[t] != path[t - 1])) labels.push_back(path[t]);
  }
  return labels;
}

// The loss of sample k, by trying every path. log_p is [T, n, C].
double by_all_paths(const std::vector<double>& log_p, const Shape& shape, std::int64_t k,
                    std::int64_t steps, const Labels& target, std::int64_t blank) {
  const std::int64_t n = shape[1], classes = shape[2];
  std::int64_t paths = 1;
  for (std::int64_t t = 0; t < steps; ++t) paths *= classes;
  double total = 0;
  for (std::int64_t i = 0; i < paths; ++i) {
    Labels path;
    double sum = 0;
    for (std::int64_t t = 0, rest = i; t < steps; ++t, rest /= classes) {
      path.push_back(rest % classes);
      sum += log_p[static_cast<std::size_t>((t * n + k) * classes + path.back())];
    }
    if (spelled(path, blank) == target) total += std::exp(sum);
  }
  return -std::log(total);
}

Tensor ids(const Labels& values, const Shape& shape) { return Tensor::from(values, shape); }

Tensor log_probabilities(PublicRandom& random, const Shape& shape) {
  return uniform_values(random, shape, -3, 0);
}

}  // namespace

TEST_CASE("the loss is minus the logarithm of the probability of all paths of the target") {
  PublicRandom random(61);
  for (int round = 0; round < 60; ++round) {
    const Shape shape{draw(random, 1, 5), draw(random, 1, 4), 3};
    const std::int64_t width = draw(random, 0, 3), blank = random.below(3);
    const Tensor log_p = log_probabilities(random, shape);
    Labels targets, steps, lengths;
    for (std::int64_t k = 0; k < shape[1]; ++k) {
      for (std::int64_t i = 0; i < width; ++i) targets.push_back((blank + draw(random, 1, 2)) % 3);
      steps.push_back(draw(random, 1, shape[0]));
      lengths.push_back(draw(random, 0, width));
    }
    Tape tape({.private_data = true});
    const Var loss = ctc_loss(tape.input(log_p, 1), ids(targets, {shape[1], width}),
                              ids(steps, {shape[1]}), ids(lengths, {shape[1]}), {.blank = blank});
    CHECK(loss.samples() == SampleAxis(0));
    const std::vector<double> got = values(loss.value());
    for (std::int64_t k = 0; k < shape[1]; ++k) {
      const auto at = static_cast<std::size_t>(k);
      const auto first = targets.begin() + k * width;
      const double expected = by_all_paths(values(log_p), shape, k, steps[at],
                                           Labels(first, first + lengths[at]), blank);
      INFO("sample " << k << " of " << shape[1] << ", " << steps[at] << " steps, " << lengths[at]
                     << " labels");
      if (std::isinf(expected))
        CHECK(std::isinf(got[at]));
      else
        CHECK(got[at] == Approx(expected).epsilon(1e-12));
    }
  }
}

TEST_CASE("a target that does not fit its steps has an infinite loss, or none") {
  PublicRandom random(62);
  const Tensor log_p = log_probabilities(random, {2, 2, 3});
  // The first target needs three steps because of its repetition.
  const auto run = [&](bool zero_infinity) {
    Tape tape;
    const Var x = tape.input(log_p, 1, true);
    const Var loss = ctc_loss(x, ids({1, 1, 1, 2}, {2, 2}), ids({2, 2}, {2}), ids({2, 2}, {2}),
                              {.zero_infinity = zero_infinity});
    SumSink sink;
    const std::vector<double> losses = values(loss.value());
    tape.backward(loss, sink);
    return std::pair(losses, values(tape.grad(x).slice(1, 0, 1)));
  };
  const auto [infinite, nothing] = run(false);
  CHECK(std::isinf(infinite[0]));
  CHECK(std::isfinite(infinite[1]));
  CHECK(std::isnan(nothing[1]));
  const auto [zero, zeros] = run(true);
  CHECK(zero[0] == 0);
  CHECK(zero[1] == infinite[1]);
  CHECK(zeros == std::vector<double>(6, 0.0));
}

TEST_CASE("impossible labels and NaN affect their own sample only") {
  PublicRandom random(63);
  const Tensor log_p = log_probabilities(random, {3, 3, 3});
  fill(log_p.slice(1, 0, 1), [] { return -HUGE_VAL; });
  fill(log_p.slice(1, 1, 2), [] { return std::nan(""); });
  Tape tape;
  const std::vector<double> losses = values(ctc_loss(tape.input(log_p, 1), ids({1, 2, 1}, {3, 1}),
                                                     ids({3, 3, 3}, {3}), ids({1, 1, 1}, {3}))
                                                .value());
  CHECK(std::isinf(losses[0]));
  CHECK(std::isnan(losses[1]));
  CHECK(std::isfinite(losses[2]));
}

TEST_CASE("labels and lengths may be i32") {
  PublicRandom random(65);
  Tape tape;
  const Var x = tape.input(log_probabilities(random, {3, 1, 3}), 1);
  const Tensor steps = ids({3}, {1}), length = ids({1}, {1}), label = ids({2}, {1, 1});
  const auto narrow = [](const Tensor& t) { return to_dtype(t, Dtype::i32); };
  CHECK(values(ctc_loss(x, narrow(label), narrow(steps), narrow(length)).value()) ==
        values(ctc_loss(x, label, steps, length).value()));
}

TEST_CASE("labels and lengths that do not fit are refused") {
  PublicRandom random(64);
  Tape tape;
  const Var x = tape.input(log_probabilities(random, {3, 1, 3}), 1);
  const Tensor one = ids({1}, {1}), label = ids({1}, {1, 1});
  CHECK(throws([&] { ctc_loss(x, ids({3}, {1, 1}), one, one); }, "label 3 of 3 classes"));
  CHECK(throws(
      [&] {
        ctc_loss(x, ids({0}, {1, 1}), one, one);
      },
      "label 0 of 3 classes with blank 0"));
  CHECK(throws([&] { ctc_loss(x, label, ids({4}, {1}), one); }, "input length 4 is not in 1 .. 3"));
  CHECK(
      throws([&] { ctc_loss(x, label, one, ids({2}, {1})); }, "target length 2 is not in 0 .. 1"));
  CHECK(throws([&] { ctc_loss(x, one, one, one); }, "targets i64 of shape (1) for 1 samples"));
  CHECK(throws([&] { ctc_loss(x, label, one, one, {.blank = 3}); }, "blank 3 of 3 classes"));
  Tape secret({.private_data = true});
  const Var rows = secret.input(log_probabilities(random, {3, 1, 3}), 0);
  CHECK(throws([&] { ctc_loss(rows, label, one, one); }, "ctc_loss"));
}
