// Prints, as one JSON object a line, the processor time of accounting on one thread: epsilon of
// many equal and of many different steps, and calibration. The smallest of several times, each with
// a new accountant.
#include <algorithm>
#include <ctime>

#include <fmt/format.h>

#include "core/threads/parallel.h"
#include "dp/accounting/calibration.h"

using namespace sotto;

namespace {

constexpr int repetitions = 3;

// `answer` returns a number that does not depend on time.
template <class F>
void report(const std::string& what, const F& answer) {
  double best = 1e9, value = 0;
  for (int i = 0; i < repetitions; ++i) {
    const std::clock_t start = std::clock();
    value = answer();
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  fmt::print("{{\"what\": \"{}\", \"milliseconds\": {:.1f}, \"answer\": {:.6g}}}\n", what,
             best * 1e3, value);
}

Event batch(double rate, double noise = 0) {
  return {.noise_multiplier = noise, .sampling = Sampling::poisson, .sampling_rate = rate};
}

void report_equal(double rate, double noise) {
  report(fmt::format("a million steps, rate {:.6g}, noise {}", rate, noise), [&] {
    const auto accountant = make_accountant();
    accountant->compose(batch(rate, noise), 1000000);
    return accountant->epsilon(1e-5);
  });
}

// A schedule that lowers the noise slightly at every step.
void report_different(double rate, double high, double low) {
  constexpr int steps = 1000;
  report(fmt::format("1,000 different steps, rate {:.6g}, noise {} to {}", rate, high, low), [&] {
    const auto accountant = make_accountant();
    for (int step = 0; step < steps; ++step)
      accountant->compose(batch(rate, high + (low - high) * step / steps));
    return accountant->epsilon(1e-5);
  });
}

// A training that displays epsilon after every few steps.
void report_shown(double rate, double noise) {
  constexpr int answers = 200, between = 10;
  report(fmt::format("{} answers, each after {} more steps, rate {:.6g}, noise {}", answers,
                     between, rate, noise),
         [&] {
           const auto accountant = make_accountant();
           double epsilon = 0;
           for (int k = 0; k < answers; ++k) {
             accountant->compose(batch(rate, noise), between);
             epsilon = accountant->epsilon(1e-5);
           }
           return epsilon;
         });
}

void report_calibration(double rate, std::int64_t steps) {
  const PrivacyTarget target{.epsilon = 3, .delta = 1e-5, .batch = batch(rate), .steps = steps};
  const auto words = [&](const char* what) {
    return fmt::format("{} for epsilon 3, rate {:.6g}, {} steps", what, rate, steps);
  };
  report(words("noise"), [&] { return calibrate_noise_multiplier(target); });
  report(words("rate"), [&] { return max_sampling_rate(1.1, target); });
  report(words("number of steps"), [&] { return static_cast<double>(max_steps(1.1, target)); });
  report(words("noise on a count"), [&] { return calibrate_count_noise(2, 1, target); });
}

}  // namespace

int main() {
  set_thread_count(1);
  constexpr double mnist = 256.0 / 60000;
  for (const auto& [rate, noise] :
       {std::pair{mnist, 1.1}, {0.01, 1.1}, {1e-3, 1.0}, {1e-4, 0.8}, {1e-4, 0.6}, {0.1, 10.0}})
    report_equal(rate, noise);
  report_different(mnist, 1.8, 0.8);
  report_different(1e-4, 1.8, 0.8);
  report_different(0.1, 10, 2);
  report_shown(mnist, 1.1);
  report_calibration(mnist, 14063);
  report_calibration(1e-3, 1000000);
}
