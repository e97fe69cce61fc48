#include "core/random/philox.h"

#include <utility>

#include "core/error.h"
#include "core/random/uniform_int.h"

namespace sotto {

double PublicRandom::normal() {
  counter_ += counter_ % 2;
  const double z = sotto::normal(key_, counter_);
  counter_ += 2;
  return z;
}

std::int64_t PublicRandom::below(std::int64_t n) {
  check(n >= 1, "below: no integers in [0, {})", n);
  return uniform_int(n, [this] { return word(); });
}

void PublicRandom::shuffle(std::span<std::int64_t> values) {
  for (std::size_t left = values.size(); left > 1; --left) {
    std::swap(values[left - 1],
              values[static_cast<std::size_t>(below(static_cast<std::int64_t>(left)))]);
  }
}

}  // namespace sotto
