#include "dp/noise/noise_prefetch.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "core/random/rounded_gaussian.h"
#include "core/random/secret_random.h"
#include "dp/clipping/clipper.h"
#include "dp/noise/gaussian_mechanism.h"
#include "dp/noise/noise_grid.h"
#include "dp/sampling/poisson_samplers.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"
#include "tests/support/threads.h"

using namespace sotto;

namespace {

using Draws = std::vector<std::int64_t>;

// Calls f(room) for each block of arrays with these element counts, and returns all draws.
template <class F>
Draws in_stretches(const std::vector<std::int64_t>& counts, F&& f) {
  Draws all;
  for (const std::int64_t count : counts) {
    for (std::int64_t at = 0; at < count; at += noise_block_size) {
      Draws room(static_cast<std::size_t>(std::min(noise_block_size, count - at)));
      const std::span<const std::int64_t> drawn = f(room);
      all.insert(all.end(), drawn.begin(), drawn.end());
    }
  }
  return all;
}

}  // namespace

TEST_CASE("prefetched noise is what would be drawn later, on any number of threads") {
  std::mt19937_64 random(5);
  const auto gaussian = std::make_shared<const RoundedGaussian>(1e6);
  for (int round = 0; round < 24; ++round) {
    std::vector<std::int64_t> counts;
    for (int k = 0; k < 4; ++k) counts.push_back(static_cast<std::int64_t>(random() % 3000));
    counts.push_back(static_cast<std::int64_t>(random() % 50'000));
    if (round % 4 == 0) counts.push_back(NoisePrefetch::max_ahead + 1234);
    SecretRandom later = SecretRandom::insecure_seeded(7), ahead = SecretRandom::insecure_seeded(7);
    const Draws expected = in_stretches(counts, [&](std::span<std::int64_t> room) {
      gaussian->fill(later, room);
      return room;
    });
    const Threads setting(1 + round % 3);
    NoisePrefetch noise(gaussian, ahead, counts);
    // Part of the noise has been drawn by then, or all, or none.
    for (int k = 0; k < 1000 * (round % 5); ++k) std::this_thread::yield();
    const auto next = [&](std::span<std::int64_t> room) { return noise.next(room); };
    CHECK((in_stretches(counts, next) == expected));  // too long to print
    CHECK(ahead.word() == later.word());
  }
}

TEST_CASE("prefetched noise that is not used is discarded, whether or not it was drawn") {
  const Threads setting(3);
  const auto gaussian = std::make_shared<const RoundedGaussian>(1e6);
  SecretRandom random = SecretRandom::insecure_seeded(7);
  for (int round = 0; round < 200; ++round) {
    NoisePrefetch noise(gaussian, random, {20'000});
    NoisePrefetch other(gaussian, random, {20'000});  // idle threads do one task at a time
    Draws room(20'000);
    if (round % 2 == 0) CHECK(other.next(room).size() == room.size());
  }
}

namespace {

// The releases of sums of zeros by a mechanism with a fixed seed, with one noise multiplier after
// another.
class Releases {
 public:
  explicit Releases(bool expect)
      : expect_(expect), mechanism_(1, SecretRandom::insecure_seeded(9)) {}
  std::vector<float> next(double multiplier) {
    mechanism_.set_noise_multiplier(multiplier);
    if (expect_) mechanism_.prefetch();
    const NoisyGradient released = mechanism_.release(clipper_.finish(sampler_.draw()), ledger_);
    std::vector<float> values;
    for (const auto& [parameter, gradient] : released.gradients()) {
      for (const float v : gradient.to_vector<float>()) values.push_back(v);
    }
    return values;
  }

 private:
  bool expect_;
  Parameter weight_{zeros({100, 70})}, bias_{zeros({45})};
  Clipper clipper_{{{{&weight_, &bias_}, 0.5}}};
  PoissonSampler sampler_{1000, 1e-12, SecretRandom::insecure_seeded(2)};
  Ledger ledger_;
  GaussianMechanism mechanism_;
};

}  // namespace

TEST_CASE("a release that was announced has the noise of one that was not") {
  Releases plain(false);
  const Threads setting(3);
  Releases expected(true);
  for (int step = 0; step < 5; ++step) CHECK((expected.next(1.5) == plain.next(1.5)));
}

TEST_CASE("noise prefetched for another multiplier is not released, with any number of threads") {
  const auto course = [](int threads) {
    const Threads setting(threads);
    Releases releases(true);
    std::vector<std::vector<float>> all;
    for (const double multiplier : {1.0, 1.0, 1.0, 64.0, 64.0, 64.0, 1.0, 1.0})
      all.push_back(releases.next(multiplier));
    return all;
  };
  const auto found = course(3);
  CHECK((found == course(1)));
  // No two releases share noise, and each has the noise of its multiplier.
  std::vector<double> squares;
  for (const auto& values : found) {
    double sum = 0;
    for (const float v : values) sum += std::pow(static_cast<double>(v), 2);
    squares.push_back(sum);
  }
  for (std::size_t step = 1; step < found.size(); ++step) {
    CHECK((found[step] != found[step - 1]));
    const double times = step >= 3 && step <= 5 ? 64 * 64 : 1;
    CHECK(squares[step] == Approx(times * squares[0]).epsilon(0.2));
  }
}

TEST_CASE("noise that was prefetched before a fork is used by the parent only") {
  const Threads setting(3);
  const auto gaussian = std::make_shared<const RoundedGaussian>(1e6);
  SecretRandom random;
  std::optional<NoisePrefetch> noise(std::in_place, gaussian, random,
                                     std::vector<std::int64_t>{5'000});
  CHECK(noise->ours());
  const pid_t child = fork();
  if (child == 0) {
    const bool ours = noise->ours();
    noise.reset();  // waits for no thread
    _exit(ours ? 1 : 0);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(noise->ours());
}
