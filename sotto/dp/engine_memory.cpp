// How many rows the engine computes at once, where it is to find out: dry runs of its own code into
// another clipper, from which nothing is released.
#include <algorithm>

#include "sotto/dp/binomial_tail.h"
#include "sotto/dp/engine.h"
#include "sotto/memory/fit.h"

namespace sotto {

namespace {

// A batch is larger than this many units with a probability of at most 2^-20, about one in a
// million: then it takes more parts, not more memory.
std::int64_t large_batch(const Sampler& sampler) {
  constexpr double tail = 0x1p-20;
  const std::int64_t population = sampler.population();
  const double rate = std::min(1.0, sampler.expected_size() / static_cast<double>(population));
  auto least = static_cast<std::int64_t>(sampler.expected_size()), most = population;
  while (least < most) {
    const std::int64_t middle = (least + most) / 2;
    if (binomial_tail(population, rate, middle) <= tail) {
      most = middle;
    } else {
      least = middle + 1;
    }
  }
  return std::max<std::int64_t>(1, most);
}

}  // namespace

std::optional<std::int64_t> Engine::physical_batch() const {
  if (!physical_batches_) return std::nullopt;
  return physical_batches_->rows();
}

// So many rows of the first units, the last of which may be cut.
Engine::RowsOfUnits Engine::dry_units(std::int64_t rows) const {
  RowsOfUnits units;
  for (std::int64_t unit = 0; rows > 0; unit = (unit + 1) % sampler_->population()) {
    units.push_back(rows_of_unit(unit));
    if (std::ssize(units.back()) > rows) units.back().resize(static_cast<std::size_t>(rows));
    rows -= std::ssize(units.back());
  }
  return units;
}

void Engine::fit_physical_batch(const Loss& loss) {
  std::int64_t largest_unit = options_.rows_of_unit ? 0 : 1;
  for (std::int64_t unit = 0; options_.rows_of_unit && unit < sampler_->population(); ++unit)
    largest_unit = std::max<std::int64_t>(largest_unit, std::ssize(rows_of_unit(unit)));
  const std::int64_t parts = options_.memory.accumulation.value_or(1);
  const auto peak_of = [&](std::int64_t rows) {
    Clipper clipper(clipper_.groups(), options_.clipping, options_.passes);
    PhaseClock unseen;
    const RowsOfUnits units = dry_units(rows);
    // The second of two parts is the largest: the sums are there already.
    for (int part = 0; part < 2; ++part) add_part(loss, part_of(units), {clipper, unseen});
    unseen.stop();
    return unseen.peak_bytes() + optimizer_.bytes_to_come();
  };
  const std::int64_t least = std::max<std::int64_t>(1, largest_unit);
  const std::int64_t most = (large_batch(*sampler_) * least + parts - 1) / parts;
  const std::int64_t rows = largest_unit == 0
                                ? 1  // nobody has any
                                : memory::fit_rows(peak_of, least, std::max(least, most),
                                                   memory::limit_within(options_.memory.limit))
                                      .rows;
  physical_batches_.emplace(rows, parts);
}

}  // namespace sotto
