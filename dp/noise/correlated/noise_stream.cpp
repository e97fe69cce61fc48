#include "dp/noise/correlated/noise_stream.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>

#include "core/threads/parallel.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

using Wide = __int128;

// A factor's numbers are multiples of 2^-40.
constexpr int factor_bits = 40;
std::int64_t whole(double x) { return std::llrint(std::ldexp(x, factor_bits)); }

// The nearest integer to x / 2^bits, halves up.
std::int64_t rounded(Wide x, int bits) {
  return static_cast<std::int64_t>((x + (Wide{1} << (bits - 1))) >> bits);
}

// Elements that are processed together, so that their sums stay in the first-level cache.
constexpr std::size_t group = 256;

std::int64_t slots_of(const TreeFactor& /*factor*/, std::int64_t steps) {
  return std::bit_width(static_cast<std::uint64_t>(steps));
}
std::int64_t slots_of(const BandedToeplitz& factor, std::int64_t steps) {
  return std::min(std::ssize(factor.coefficients), steps) - 1;
}
std::int64_t slots_of(const BufferedToeplitz& factor, std::int64_t /*steps*/) {
  return std::ssize(factor.decays);
}

// The fraction bits of buffers. Rounding a buffer to 2^-bits at every step changes m by up to
// 2^-bits / 2 times sum_i scales[i] sum_k decays[i]^k, the sum of C's first column below the
// diagonal: by at most 1/4.
int bits_for_buffers(const StrategyMatrix& strategy) {
  double sum = 0;
  for (std::int64_t t = 1; t < strategy.steps(); ++t) sum += strategy.entry(t, 0);
  return std::max(1, std::ilogb(2 * sum + 1) + 1);
}

// The memory of a stream at a step, for elements from one on.
struct Slots {
  std::int64_t* memory;  // the first of these elements in slot 0
  std::int64_t count, elements, step;
  int fraction_bits;

  std::span<std::int64_t> at(std::int64_t index, std::size_t size) const {
    return {memory + index * elements, size};
  }
};

// The node that ends at this step replaces the nodes it consists of.
void correlate(const TreeFactor& /*factor*/, Slots slots, std::span<std::int64_t> noise) {
  const int level = std::countr_zero(static_cast<std::uint64_t>(slots.step + 1));
  const auto node = slots.at(level, noise.size());
  std::copy(noise.begin(), noise.end(), node.begin());
  for (int below = 0; below < level; ++below) {
    const auto part = slots.at(below, noise.size());
    for (std::size_t e = 0; e < noise.size(); ++e) noise[e] -= part[e];
  }
}

// Slot t mod (bands - 1) holds the noise of step t.
void correlate(const BandedToeplitz& factor, Slots slots, std::span<std::int64_t> noise) {
  if (slots.count == 0) return;
  std::array<Wide, group> sums{};
  for (std::int64_t back = 1; back <= std::min(slots.count, slots.step); ++back) {
    const std::int64_t c = whole(factor.coefficients[static_cast<std::size_t>(back)]);
    const auto past = slots.at((slots.step - back) % slots.count, noise.size());
    for (std::size_t e = 0; e < noise.size(); ++e) sums[e] += static_cast<Wide>(c) * past[e];
  }
  const auto now = slots.at(slots.step % slots.count, noise.size());
  for (std::size_t e = 0; e < noise.size(); ++e) {
    now[e] = noise[e] -= rounded(sums[e], factor_bits);
  }
}

// Buffer i, in units of 2^-fraction_bits, is sum_(j < t) decays[i]^(t-j-1) y_j.
void correlate(const BufferedToeplitz& factor, Slots slots, std::span<std::int64_t> noise) {
  std::array<Wide, group> sums{};
  for (std::int64_t i = 0; i < slots.count; ++i) {
    const std::int64_t scale = whole(factor.scales[static_cast<std::size_t>(i)]);
    const auto buffer = slots.at(i, noise.size());
    for (std::size_t e = 0; e < noise.size(); ++e) sums[e] += static_cast<Wide>(scale) * buffer[e];
  }
  for (std::size_t e = 0; e < noise.size(); ++e) {
    noise[e] -= rounded(sums[e], factor_bits + slots.fraction_bits);
  }
  for (std::int64_t i = 0; i < slots.count; ++i) {
    const std::int64_t decay = whole(factor.decays[static_cast<std::size_t>(i)]);
    const auto buffer = slots.at(i, noise.size());
    for (std::size_t e = 0; e < noise.size(); ++e) {
      buffer[e] = rounded(static_cast<Wide>(decay) * buffer[e], factor_bits) +
                  (noise[e] << slots.fraction_bits);
    }
  }
}

}  // namespace

CorrelatedNoiseStream::CorrelatedNoiseStream(StrategyMatrix strategy, std::int64_t elements)
    : strategy_(std::move(strategy)) {
  check(elements >= 0, "noise stream: {} elements", elements);
  const std::int64_t slots = std::visit(
      [&](const auto& kind) { return slots_of(kind, strategy_.steps()); }, strategy_.factor());
  memory_ = zeros({slots, elements}, Dtype::i64);
  if (std::holds_alternative<BufferedToeplitz>(strategy_.factor())) {
    fraction_bits_ = bits_for_buffers(strategy_);
  }
}

void CorrelatedNoiseStream::correlate(std::int64_t first, std::span<std::int64_t> noise) {
  check(step_ < strategy_.steps(), "noise stream: all {} steps were made", step_);
  check(first >= 0 && first + std::ssize(noise) <= elements(),
        "noise stream: elements {} to {} of {}", first, first + std::ssize(noise), elements());
  const auto groups = static_cast<std::int64_t>((noise.size() + group - 1) / group);
  constexpr std::int64_t grain = 16;
  parallel_for(groups, grain, [&](std::int64_t begin, std::int64_t end) {
    for (auto g = begin; g < end; ++g) {
      const auto at = static_cast<std::size_t>(g) * group;
      const auto part = noise.subspan(at, std::min(group, noise.size() - at));
      const std::int64_t element = first + static_cast<std::int64_t>(at);
      const Slots slots{memory_.data<std::int64_t>() + element, memory_.size(0), elements(), step_,
                        fraction_bits_};
      std::visit([&](const auto& kind) { sotto::correlate(kind, slots, part); },
                 strategy_.factor());
    }
  });
}

double CorrelatedNoiseStream::spread() const {
  double max = 1;
  for (std::int64_t t = 0; t < strategy_.steps(); ++t) {
    max = std::max(max, strategy_.noise_variance(t));
  }
  const auto* factor = std::get_if<BufferedToeplitz>(&strategy_.factor());
  if (factor == nullptr) return std::sqrt(max);
  std::vector<double> impulse(static_cast<std::size_t>(strategy_.steps()), 0.0);
  impulse[0] = 1;
  const std::vector<double> noise = strategy_.solve(std::move(impulse));
  const double unit = std::ldexp(1.0, 2 * fraction_bits_);
  for (const double decay : factor->decays) {
    double buffer = 0, square = 0;
    for (const double y : noise) {
      buffer = decay * buffer + y;
      square += buffer * buffer;
    }
    max = std::max(max, square * unit);
  }
  return std::sqrt(max);
}

void CorrelatedNoiseStream::resume(std::int64_t step, const Tensor& memory) {
  check(step >= 0 && step <= strategy_.steps(), "noise stream: step {} of {}", step,
        strategy_.steps());
  check(memory.defined() && memory.dtype() == Dtype::i64 && memory.shape() == memory_.shape(),
        "noise stream: a memory of another shape or dtype than {}", memory_.shape());
  copy_into(memory, memory_);
  step_ = step;
}

}  // namespace sotto
