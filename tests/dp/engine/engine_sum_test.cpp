// The sum released by an engine's step on a large batch moves by at most its sensitivity when a
// unit is left out, for data crafted so that rounding errors align.
#include <algorithm>
#include <cmath>

#include "dp/engine/engine.h"
#include "nn/optim/optimizer.h"
#include "tests/support/catch.h"
#include "tests/support/dp_models.h"

namespace sotto {
namespace {

constexpr std::int64_t many = 1 << 17;
constexpr std::size_t rows_of_part = 8;

// Gradients of one number each, which sum up to about 0. In the first half, eight successive ones
// sum up to slightly less than half a unit in the last place of large sums, and eight that begin
// one unit later to slightly more. The first unit is clipped.
std::vector<float> gradients_that_line_up() {
  std::vector<float> x(many, -0.9375F);
  for (std::size_t first = 0; first < x.size() / 2; first += rows_of_part) {
    const double rising = 0.90625 + 0x1p-18 * static_cast<double>(first / rows_of_part);
    std::fill_n(x.begin() + static_cast<std::ptrdiff_t>(first), rows_of_part, 0.9375F);
    x[first] = static_cast<float>(rising);
    x[first + 1] = static_cast<float>(2 * 0.9375 + 0x1p-9 - 0x1p-19 - rising);
  }
  x[0] = 5;
  return x;
}

// The f32 sum of the clipped gradients from `first` on, in physical batches.
float sum_in_f32(const std::vector<float>& x, std::size_t first) {
  float sum = 0;
  for (std::size_t begin = first; begin < x.size(); begin += rows_of_part) {
    float of_part = 0;
    for (std::size_t n = begin; n < std::min(begin + rows_of_part, x.size()); ++n)
      of_part += std::min(1.0F, x[n]);
    sum += of_part;
  }
  return sum;
}

struct ReleasedSum {
  double value;
  double sensitivity;
};

// The sum released by one engine step, with noise of 10^-7 of its sensitivity.
ReleasedSum released(const Tensor& x, bool first_has_row) {
  nn::Linear model(1, 1, {.bias = false});
  model.weight->value = zeros({1, 1});
  nn::Sgd optimizer(model, {.learning_rate = 1});
  Engine engine(model, optimizer, many, Ledger(),
                {.noise_multiplier = 1e-7,
                 .delta = 1e-7,
                 .sampling = Sampling::full_batch,
                 .logical_batch = many,
                 .memory = {.physical_batch = std::int64_t{rows_of_part}},
                 .rows_of_unit = [first_has_row](std::int64_t unit) {
                   if (unit == 0 && !first_has_row) return std::vector<std::int64_t>();
                   return std::vector{unit};
                 }});
  engine.step([&](Tape& tape, std::span<const std::int64_t> rows) {
    const std::vector<std::int64_t> some(rows.begin(), rows.end());
    const Tensor ids = Tensor::from(some, {std::ssize(some)});
    return sum_per_sample(model(tape.input(gather(x, ids, 0))));
  });
  const double mean = -model.weight->value.to_vector<float>()[0];
  return {mean * many, engine.clipper().sensitivity()};
}

TEST_CASE("an engine's step on 2^17 units keeps its stated sensitivity, unlike one in f32") {
  const std::vector<float> gradients = gradients_that_line_up();
  const Tensor x = Tensor::from(gradients, {many, 1});
  const ReleasedSum with = released(x, true), without = released(x, false);
  const double by = std::abs(with.value - without.value);
  CHECK(with.sensitivity == without.sensitivity);
  CHECK(by > 0.999);
  constexpr double unseen = 1e-5;  // above the noise and the last digits of weights
  CHECK(by <= with.sensitivity + unseen);
  CHECK(std::abs(sum_in_f32(gradients, 0) - sum_in_f32(gradients, 1)) > 10 * with.sensitivity);
}

}  // namespace
}  // namespace sotto
