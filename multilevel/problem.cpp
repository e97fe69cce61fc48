#include "multilevel/problem.h"

#include "nn/data/dataset.h"

namespace sotto::multilevel {

Batches shuffled_batches(std::int64_t rows, std::int64_t batch, std::uint64_t seed) {
  return [batches = ShuffledBatches(rows, batch, seed), batch](std::int64_t number) mutable {
    batches.seek({.epoch = number / batches.batches(), .row = number % batches.batches() * batch});
    return batches.next();
  };
}

}  // namespace sotto::multilevel
