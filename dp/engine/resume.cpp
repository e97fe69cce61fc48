// Engine::load_state().
#include <utility>

#include "core/join.h"
#include "core/ranks/collectives.h"
#include "dp/engine/engine_parts.h"

namespace sotto {

std::vector<const Parameter*> Engine::Parts::summed_parameters() const {
  std::vector<const Parameter*> all;
  for (const ClipGroup& group : clipper.groups())
    all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  return all;
}

const std::vector<Fact>& Engine::Parts::facts_of_data() const {
  if (!of_data) of_data = data_facts(data ? &*data : nullptr, sampler->population(), options);
  return *of_data;
}

EngineState Engine::Parts::state() const {
  return {.ledger = ledger.id(),
          .run = ledger.run_id(),
          .steps_made = steps_made,
          .noise_multiplier = noise.initial(),
          .bounds = clipper.bounds(),
          .loss_scale = {loss_scale.value(), loss_scale.good_steps()},
          .means_released = means_released,
          .facts = facts,
          .data = facts_of_data(),
          .sampler = sampler->state(),
          .mechanism = {}};
}

// In an epoch that goes on, each unit is in the batches that it was given when the epoch was drawn,
// and its whole epoch is charged once: other data would give it others. The same holds for a plan
// of correlated noise.
void Engine::Parts::check_changes(const EngineState& state) const {
  const bool in_epoch = state.sampler.index_in_epoch % state.sampler.event.batches > 0;
  const bool goes_on = state.sampler.number == ledger.next_draw() &&
                       (in_epoch || (options.noise_strategy && state.steps_made > 0));
  check(!goes_on || same_data(state.data, facts_of_data()),
        "engine state: the data are not those of the checkpoint, which was written within an "
        "epoch of {} batches that is charged once: a unit could take part in it twice",
        name(state.sampler.event.sampling));
  for (const std::string& change : differences(facts, state.facts))
    check(!change.starts_with("clip bound "), "engine state: {}", change);
}

void Engine::Parts::check_state(const EngineState& state) const {
  check(state.ledger == ledger.id() && state.run == ledger.run_id(),
        "engine state: of another run than this ledger's");
  check(state.steps_made >= 0 && state.steps_made <= ledger.run_releases(),
        "engine state: step {} with {} releases of this run in the ledger", state.steps_made,
        ledger.run_releases());
  // With a target epsilon it was larger if other runs had already spent some of it at the start.
  check(state.noise_multiplier == noise.initial() ||
            (options.target_epsilon && state.noise_multiplier > noise.initial()),
        "engine state: the noise multiplier would be {:.6g} and was {:.6g}", noise.initial(),
        state.noise_multiplier);
  check(state.bounds.size() == clipper.groups().size(),
        "engine state: {} clip bounds for {} groups", state.bounds.size(), clipper.groups().size());
  check(!options.noise_strategy || state.sampler.number == ledger.next_draw(),
        "engine state: the plan of correlated noise stood at draw {}, and the ledger has seen "
        "draws up to {}: a new plan must begin",
        state.sampler.number, ledger.next_draw());
  check_changes(state);
}

void Engine::Parts::load_together(const TensorFile& file) {
  EngineState state;
  on_rank_0(*options.ranks, "Engine::load_state", [&] {
    state = engine_state(file);
    check_state(state);
    SharedRun::check_whole(state.mechanism, summed_parameters());
  });
  abort_on_error(shared->ranks(),
                 [&] { state.mechanism = shared->own(state.mechanism, summed_parameters()); });
  on_rank_0(*options.ranks, "Engine::load_state", [&] { load(state); });
  share_progress();
  if (leads()) return;
  abort_on_error(shared->ranks(), [&] { mechanism->load_state(state.mechanism); });
}

void Engine::Parts::load(const EngineState& state) {
  check_state(state);
  memory::LossScale scale = loss_scale;
  if (options.loss_scaling.adjust != memory::LossScaling::Adjust::never)
    scale.resume(state.loss_scale.value, state.loss_scale.good_steps);
  const SamplerState before = sampler->state();
  sampler->load_state(state.sampler);
  const double noise_before = noise.initial();
  noise.set_initial(state.noise_multiplier);
  std::unique_ptr<Mechanism> mechanism_before;
  try {
    if (state.noise_multiplier != noise_before)
      mechanism_before = std::exchange(mechanism, noise.make_mechanism());
    mechanism->load_state(state.mechanism);
    clipper.set_bounds(state.bounds);
    clipper.set_loss_scale(scale.value());
  } catch (...) {
    noise.set_initial(noise_before);
    if (mechanism_before) mechanism = std::move(mechanism_before);
    sampler->load_state(before);
    throw;
  }
  if (state.sampler.number != ledger.next_draw()) sampler->resume_from(ledger.next_draw());
  steps_made = state.steps_made;
  means_released = state.means_released;
  loss_scale = scale;
  changes.clear();
  if (!same_data(state.data, facts_of_data()))
    changes.emplace_back("the data are not those of the checkpoint");
  for (std::string& change : differences(facts, state.facts)) changes.push_back(std::move(change));
}

}  // namespace sotto
