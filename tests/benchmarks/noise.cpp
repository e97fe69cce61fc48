// Prints, as one JSON object a line, the speed of secret noise on one thread, and the time of
// releasing a model's gradient: the fastest of several repetitions.
#include <vector>

#include <fmt/format.h>

#include "autograd/ops.h"
#include "core/random/gaussian.h"
#include "core/random/rounded_gaussian.h"
#include "core/random/secret_random.h"
#include "core/threads/parallel.h"
#include "dp/clipping/clipper.h"
#include "dp/noise/gaussian_mechanism.h"
#include "dp/sampling/sampler.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/benchmarks/timing.h"

using namespace sotto;

namespace {

constexpr std::size_t draws = 1 << 20;

void report_draws(const std::string& what, const std::function<void()>& run) {
  fmt::print("{{\"what\": \"{}\", \"threads\": {}, \"million_draws_a_second\": {:.1f}}}\n", what,
             thread_count(), static_cast<double>(draws) / fastest_seconds(run) * 1e-6);
}

void report_release(const std::string& what, std::int64_t elements, GaussianNoise noise) {
  Parameter parameter(zeros({elements}));
  Clipper clipper({{{&parameter}, 1}});
  FullBatchSampler sampler(1);
  GaussianMechanism mechanism(1, SecretRandom(), noise);
  Ledger ledger;
  double best = 1e9;
  for (int i = 0; i < 30; ++i) {
    Tape tape({.private_data = true});
    const Var x = tape.input(zeros({1, elements}));
    clipper.add(tape, sum_per_sample(mul(x, tape.use(parameter))));
    ClippedSum sum = clipper.finish(sampler.draw());
    best = std::min(best, seconds_of([&] { mechanism.release(std::move(sum), ledger); }));
  }
  fmt::print(
      "{{\"what\": \"{}\", \"threads\": {}, \"parameters\": {}, \"milliseconds\": {:.3f}}}\n", what,
      thread_count(), elements, best * 1e3);
}

}  // namespace

int main() {
  set_thread_count(1);
  SecretRandom random;
  std::vector<std::uint64_t> words(draws);
  std::vector<std::int64_t> whole(draws);
  std::vector<double> real(draws);
  report_draws("words", [&] { random.fill(std::span(words)); });
  for (const double deviation : {0x1p28, 1.5 * 0x1p28, 1.99 * 0x1p28}) {
    const RoundedGaussian gaussian(deviation);
    report_draws(fmt::format("rounded, deviation {:.0f}", deviation),
                 [&] { gaussian.fill(random, whole); });
  }
  report_draws("floating point", [&] { fill_gaussian(random, real); });
  for (const std::int64_t elements : {26'010, 10'000'000}) {
    report_release("release, rounded", elements, GaussianNoise::discretized);
    report_release("release, floating point", elements, GaussianNoise::floating_point);
  }
}
