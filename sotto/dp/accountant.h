// The seam for accountants: what a sequence of releases proves about epsilon and delta.
#pragma once

#include <cstdint>
#include <string>

#include "sotto/dp/event.h"

namespace sotto {

class Accountant {
 public:
  virtual ~Accountant() = default;

  // Adds `count` releases of one kind after what was composed before. Throws std::invalid_argument
  // when a number of the event is out of range or count < 0.
  virtual void compose(const Event& event, std::int64_t count = 1) = 0;
  // The smallest epsilon this accountant can prove for delta in (0, 1); 0 for an empty history,
  // infinity when nothing can be proved.
  virtual double epsilon(double delta) const = 0;
  // The smallest delta it can prove for epsilon >= 0.
  virtual double delta(double epsilon) const = 0;
  virtual std::string name() const = 0;
};

}  // namespace sotto
