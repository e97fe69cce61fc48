// Walks random per-sample gradients of every form, on every engine; and what they are compared
// with, by loops over materialized gradients.
#pragma once

#include "autograd/per_sample/per_sample_grad.h"
#include "core/random/philox.h"
#include "tests/fake_gpu/host_executor.h"
#include "tests/support/per_sample_cases.h"

namespace sotto {

inline constexpr int per_sample_cases = 60;
inline constexpr NormMethod norm_methods[] = {NormMethod::automatic, NormMethod::ghost,
                                              NormMethod::materialize};

// The materialized gradients as [n][element].
inline std::vector<std::vector<double>> rows_of(const PerSampleGrad& f) {
  const std::vector<double> flat = values(f.materialize());
  const auto width = static_cast<std::size_t>(f.shape().numel());
  std::vector<std::vector<double>> rows;
  for (std::int64_t n = 0; n < f.samples(); ++n) {
    const auto first = flat.begin() + n * static_cast<std::ptrdiff_t>(width);
    rows.emplace_back(first, first + static_cast<std::ptrdiff_t>(width));
  }
  return rows;
}

inline std::vector<double> products(const std::vector<std::vector<double>>& f,
                                    const std::vector<std::vector<double>>& g) {
  std::vector<double> y;
  for (std::size_t n = 0; n < f.size(); ++n) {
    double sum = 0;
    for (std::size_t k = 0; k < f[n].size(); ++k) sum += f[n][k] * g[n][k];
    y.push_back(sum);
  }
  return y;
}

inline std::vector<double> weighted(const std::vector<std::vector<double>>& rows,
                                    const std::vector<double>& w, std::int64_t width) {
  std::vector<double> y(static_cast<std::size_t>(width), 0.0);
  for (std::size_t n = 0; n < rows.size(); ++n) {
    for (std::size_t k = 0; k < y.size(); ++k) y[k] += w[n] == 0 ? 0 : w[n] * rows[n][k];
  }
  return y;
}

// Calls f for uses of every form, in random sizes.
template <class F>
void for_each_use(F&& f) {
  for_each_engine([&](Backend&) {
    PublicRandom random(31);
    for (int i = 0; i < per_sample_cases; ++i) {
      const auto [u, v] = random_pair(random);
      for (const PerSampleGrad& use : {u, v}) {
        INFO(use.form() << ", " << use.samples() << " samples of " << to_string(use.shape()));
        f(use, random);
      }
    }
  });
}

}  // namespace sotto
