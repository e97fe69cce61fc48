#include "sotto/dp/engine.h"

#include <limits>

#include <fmt/ranges.h>

#include "sotto/dp/calibration.h"
#include "sotto/dp/validation.h"

namespace sotto {

namespace {

EngineOptions validated(nn::Module& model, const nn::Optimizer& optimizer, std::int64_t population,
                        const EngineOptions& options) {
  const std::vector<std::string> problems = engine_problems(model, optimizer, population, options);
  check(problems.empty(), "Engine: {}", fmt::join(problems, "\nEngine: "));
  return options;
}

double noise_for(const EngineOptions& options, double rate) {
  if (options.noise_multiplier) return *options.noise_multiplier;
  return calibrate_noise_multiplier({.epsilon = *options.target_epsilon,
                                     .delta = options.delta,
                                     .sampling_rate = rate,
                                     .steps = options.steps});
}

// Whether row k is unit k.
bool one_row_each(const Grouping& grouping) {
  for (std::size_t row = 0; row < grouping.unit_of_row.size(); ++row) {
    if (grouping.unit_of_row[row] != static_cast<std::int64_t>(row)) return false;
  }
  return grouping.units == static_cast<std::int64_t>(grouping.unit_of_row.size());
}

}  // namespace

Engine::Engine(nn::Module& model, nn::Optimizer& optimizer, std::int64_t population, Ledger& ledger,
               const EngineOptions& options)
    : options_(validated(model, optimizer, population, options)),
      optimizer_(optimizer),
      ledger_(ledger),
      sampler_(population, options.logical_batch / static_cast<double>(population)),
      clipper_(flat_group(model.parameters(), options.clip_bound), options.clipping,
               options.passes),
      mechanism_(noise_for(options, sampler_.rate()), SecretRandom(), options.noise) {
  // Scales that the grid does not have are refused now, and not at the first release.
  std::int64_t elements = 0;
  for (const Parameter* parameter : clipper_.groups()[0].parameters)
    elements += parameter->value.numel();
  if (options.noise == GaussianNoise::rounded && mechanism_.noise_multiplier() > 0 && elements > 0)
    noise_grid(mechanism_.noise_multiplier(), clipper_.sensitivity(), elements);
  for (const auto& [event, count] : ledger.events()) {
    spent_.compose(event, count);
    next_.compose(event, count);
  }
  next_.compose(mechanism_.event(sampler_.event()));
  sampler_.number_from(ledger.next_draw());
}

void Engine::resume_at(std::int64_t steps_made) {
  check(steps_made >= 0 && steps_made <= ledger_.releases(),
        "Engine: resumed at step {} with {} releases in the ledger", steps_made,
        ledger_.releases());
  steps_made_ = steps_made;
}

bool Engine::can_step() const {
  if (options_.steps > 0 && steps_made_ >= options_.steps) return false;
  return !options_.target_epsilon || next_.epsilon(options_.delta) <= *options_.target_epsilon;
}

double Engine::epsilon() const {
  return ledger_.private_noise() ? spent_.epsilon(options_.delta)
                                 : std::numeric_limits<double>::infinity();
}

std::vector<Engine::Part> Engine::parts_of(const Draw& draw) const {
  std::vector<Part> parts;
  for (const std::int64_t unit : draw.units()) {
    const std::vector<std::int64_t> rows =
        options_.rows_of_unit ? options_.rows_of_unit(unit) : std::vector<std::int64_t>{unit};
    const auto most = static_cast<std::size_t>(options_.physical_batch);
    if (parts.empty() || parts.back().rows.size() + rows.size() > most)
      parts.push_back({{}, {.unit_of_row = {}, .units = 0, .mean = options_.mean_of_rows}});
    Part& part = parts.back();
    part.rows.insert(part.rows.end(), rows.begin(), rows.end());
    part.grouping.unit_of_row.insert(part.grouping.unit_of_row.end(), rows.size(),
                                     part.grouping.units++);
  }
  return parts;
}

void Engine::add_part(const Loss& loss, Part part, std::int64_t first_row) {
  if (part.rows.empty()) return clipper_.add_zeros(part.grouping.units);
  // A batch of one cannot tell its sample axis from other axes of size 1: its row comes twice, and
  // once it counts for nothing.
  if (part.rows.size() == 1) {
    part.rows.push_back(part.rows[0]);
    part.grouping.unit_of_row.push_back(-1);
  }
  phases_.enter("forward");
  Tape tape({.private_data = true,
             .seed = options_.seed,
             .step = static_cast<std::uint64_t>(steps_made_),
             .first_row = first_row});
  const Var losses = loss(tape, part.rows);
  check(losses.shape() == Shape{static_cast<std::int64_t>(part.rows.size())},
        "Engine: a loss of shape {} for {} rows", losses.shape(), part.rows.size());
  phases_.enter("backward and clip");
  clipper_.add(tape, losses, one_row_each(part.grouping) ? nullptr : &part.grouping);
}

StepReport Engine::step(const Loss& loss) {
  check(can_step(), "Engine: no step left: {} made of {}, epsilon {:.4g} spent", steps_made_,
        options_.steps, epsilon());
  phases_.enter("sample");
  Draw draw = sampler_.draw();
  try {
    std::int64_t first_row = 0;
    for (Part& part : parts_of(draw)) {
      const auto rows = static_cast<std::int64_t>(part.rows.size());
      add_part(loss, std::move(part), first_row);
      first_row += rows;
    }
  } catch (...) {
    clipper_.discard();
    phases_.stop();
    throw;
  }
  phases_.enter("noise and ledger");
  const Event event = mechanism_.event(draw.event());
  const Released released = mechanism_.release(clipper_.finish(std::move(draw)), ledger_);
  spent_.compose(event);
  next_.compose(event);
  phases_.enter("update");
  optimizer_.step(released.gradients(), released.noise_variance());
  phases_.stop();
  ++steps_made_;
  return {.step = steps_made_, .epsilon = epsilon(), .statistics = &clipper_.statistics()};
}

}  // namespace sotto
