// Engine::state() and Engine::load_state().
#include <utility>

#include "core/io/safetensors.h"
#include "dp/engine/engine_parts.h"

namespace sotto {

const std::vector<Fact>& Engine::Parts::facts_of_data() const {
  if (!of_data_)
    of_data_ = data_facts(data_ ? &*data_ : nullptr, release_.sampler().population(), options_);
  return *of_data_;
}

TensorFile Engine::Parts::state() const {
  MechanismState of_mechanism =
      agreement_.whole(release_.mechanism().state(), release_.parameters());
  if (!agreement_.leads()) return {};
  const memory::LossScale& scale = update_.loss_scale();
  return to_file({.ledger = release_.ledger().id(),
                  .run = release_.ledger().run_id(),
                  .steps_made = steps_made_,
                  .noise_multiplier = release_.noise().initial(),
                  .bounds = release_.clipper().bounds(),
                  .loss_scale = {scale.value(), scale.good_steps()},
                  .means_released = means_released_,
                  .facts = facts_,
                  .data = facts_of_data(),
                  .sampler = release_.sampler().state(),
                  .mechanism = std::move(of_mechanism)});
}

// In an epoch that goes on, each unit is in the batches that it was given when the epoch was drawn,
// and its whole epoch is charged once: other data would give it others. The same holds for a plan
// of correlated noise.
void Engine::Parts::check_changes(const EngineState& state) const {
  const bool in_epoch = state.sampler.index_in_epoch % state.sampler.event.batches > 0;
  const bool goes_on = state.sampler.number == release_.ledger().next_draw() &&
                       (in_epoch || (options_.noise_strategy && state.steps_made > 0));
  check(!goes_on || same_data(state.data, facts_of_data()),
        "engine state: the data are not those of the checkpoint, which was written within an "
        "epoch of {} batches that is charged once: a unit could take part in it twice",
        name(state.sampler.event.sampling));
  for (const std::string& change : differences(facts_, state.facts))
    check(!change.starts_with("clip bound "), "engine state: {}", change);
}

void Engine::Parts::load(const TensorFile& file) {
  Ranks& ranks = agreement_.ranks();
  const std::vector<const Parameter*> parameters = release_.parameters();
  EngineState state;
  on_rank_0(ranks, "Engine::load_state", [&] {
    state = engine_state(file);
    release_.check_state(state);
    check_changes(state);
    Agreement::check_whole(state.mechanism, parameters);
  });
  abort_on_error(ranks, [&] { state.mechanism = agreement_.own(state.mechanism, parameters); });
  on_rank_0(ranks, "Engine::load_state", [&] { restore(state); });
  share_progress();
  // Rank 0 has loaded its own with the rest.
  if (!agreement_.leads()) abort_on_error(ranks, [&] { release_.load_mechanism(state.mechanism); });
}

// Rank 0's part of load().
void Engine::Parts::restore(const EngineState& state) {
  const memory::LossScale scale = update_.resumed(state.loss_scale);
  release_.load(state);
  update_.set_loss_scale(scale);
  steps_made_ = state.steps_made;
  means_released_ = state.means_released;
  changes_.clear();
  if (!same_data(state.data, facts_of_data()))
    changes_.emplace_back("the data are not those of the checkpoint");
  for (std::string& change : differences(facts_, state.facts))
    changes_.push_back(std::move(change));
}

}  // namespace sotto
