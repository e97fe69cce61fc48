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

}  // namespace

Engine::Engine(nn::Module& model, nn::Optimizer& optimizer, std::int64_t population, Ledger& ledger,
               const EngineOptions& options)
    : options_(validated(model, optimizer, population, options)),
      optimizer_(optimizer),
      ledger_(ledger),
      sampler_(population, options.logical_batch / static_cast<double>(population)),
      clipper_(flat_group(model.parameters(), options.clip_bound), options.clipping,
               options.passes),
      mechanism_(noise_for(options, sampler_.rate())) {
  for (const auto& [event, count] : ledger.events()) {
    spent_.compose(event, count);
    next_.compose(event, count);
  }
  next_.compose(mechanism_.event(sampler_.sampling(), sampler_.rate()));
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

void Engine::add_part(const Loss& loss, std::span<const std::int64_t> rows,
                      std::int64_t first_row) {
  if (rows.empty()) return;
  // A batch of one cannot tell its sample axis from other axes of size 1: its row comes twice, and
  // once it counts for nothing.
  const std::vector<std::int64_t> twice(2, rows[0]);
  const Grouping once{.unit_of_row = {0, -1}, .units = 1};
  const bool single = rows.size() == 1;
  if (single) rows = twice;
  phases_.enter("forward");
  Tape tape({.private_data = true,
             .seed = options_.seed,
             .step = static_cast<std::uint64_t>(steps_made_),
             .first_row = first_row});
  const Var losses = loss(tape, rows);
  check(losses.shape() == Shape{static_cast<std::int64_t>(rows.size())},
        "Engine: a loss of shape {} for {} rows", losses.shape(), rows.size());
  phases_.enter("backward and clip");
  clipper_.add(tape, losses, single ? &once : nullptr);
}

StepReport Engine::step(const Loss& loss) {
  check(can_step(), "Engine: no step left: {} made of {}, epsilon {:.4g} spent", steps_made_,
        options_.steps, epsilon());
  phases_.enter("sample");
  Draw draw = sampler_.draw();
  try {
    std::int64_t first_row = 0;
    for (const auto rows : draw.parts(options_.physical_batch)) {
      add_part(loss, rows, first_row);
      first_row += static_cast<std::int64_t>(rows.size());
    }
  } catch (...) {
    clipper_.discard();
    phases_.stop();
    throw;
  }
  phases_.enter("noise and ledger");
  const Event event = mechanism_.event(draw.sampling(), draw.rate());
  const Released released = mechanism_.release(clipper_.finish(std::move(draw)), ledger_);
  spent_.compose(event);
  next_.compose(event);
  phases_.enter("update");
  optimizer_.step(released.gradients());
  phases_.stop();
  ++steps_made_;
  return {.step = steps_made_, .epsilon = epsilon(), .statistics = &clipper_.statistics()};
}

}  // namespace sotto
