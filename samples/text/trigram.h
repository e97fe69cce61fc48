// A language model of counts: of each symbol after each two.
#pragma once

#include <memory>

#include "samples/text/network.h"

namespace sotto::text {

// The table n(a, b, c) of how often c follows a and b, where a unit begins after two symbols `end`.
// Its loss is linear, so that a unit's gradient is minus the unit's counts: one step of SGD over
// all units, at a learning rate of their number, leaves the sum of the units' counts in the table;
// of a private step the sum of clipped counts, with noise.
class TrigramNetwork final : public Network {
 public:
  explicit TrigramNetwork(std::int64_t symbols);
  // Logarithms of probabilities, of the table with noise too, since they follow from it alone.
  // p(c | a b) is the share of the counts after a and b, to which p(c | b) is added as if it had
  // been seen half a time, and p(c | b) is smoothed by p(c) likewise (Dirichlet priors; MacKay and
  // Peto 1995). A count is used as far as it exceeds its noise's standard deviation, and the noise
  // adds to the half as much as noise alone leaves of all counts, on average.
  Var forward(const Var& ids, const Tensor& lengths) override;
  void visit(const nn::Visitor& visitor) override { visitor("counts", counts_); }

  // loss[n] = -sum_t n(a, b, c) over the symbols c of row n and the two before each.
  Var losses(Tape& tape, const Dataset& rows);

 private:
  std::int64_t symbols_;
  std::unique_ptr<Parameter> counts_;  // [symbols^3, 1]
};

}  // namespace sotto::text
