#include "dp/sampling/remote_sampler.h"

namespace sotto {

void RemoteSampler::receive(std::int64_t index_in_epoch, std::uint64_t epoch_began,
                            std::uint64_t number, std::vector<std::int64_t> own,
                            const UnitDigest& all) {
  SamplerState state = this->state();
  state.index_in_epoch = index_in_epoch;
  state.event.paid = index_in_epoch % state.event.batches > 0;
  state.epoch_began = epoch_began;
  state.number = number;
  load_state(state);
  own_ = std::move(own);
  all_ = all;
}

}  // namespace sotto
