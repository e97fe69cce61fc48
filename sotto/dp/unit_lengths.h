// From the norms of a part's units to the factors that bound them: clip_rules.h, for all units of a
// group of parameters at once.
#pragma once

#include <vector>

#include "sotto/autograd/per_sample.h"
#include "sotto/kernels/clip_rules.h"

namespace sotto {

// What one group's gradients are multiplied by.
struct UnitFactors {
  std::vector<double> norms, values;  // one for each unit
  // Units whose terms are too long for a sum with others' (GradientLength::apart).
  std::vector<std::size_t> apart;
  // Whether no sum of these gradients times these can overflow, whatever the order of its terms.
  bool harmless = false;
};

// Of a group's gradient for each unit.
class UnitLengths {
 public:
  explicit UnitLengths(std::int64_t units);
  // One parameter more, of a loss times `scale`, a power of two.
  void add(const std::vector<PerSample>& uses, Route route, double scale);
  // For a bound with this margin for rounding, and gradients of a loss times `scale`.
  UnitFactors factors(const ClipRule& rule, double bound, double margin, double scale) const;

 private:
  std::vector<GradientLength> of_;
};

}  // namespace sotto
