// What ran, in the words every accountant understands: one noisy release on one batch.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sotto {

// How the batch of a release was drawn. The last four come in passes of several batches, of which
// the first pays for all: a record takes part in at most one of them, or the noise multiplier is
// that of all of them together. docs/accounting.md says which accountant has a proof for which.
enum class Sampling {
  full_batch,         // every record takes part
  poisson,            // every record takes part with probability `sampling_rate`, independently
  truncated_poisson,  // the same, but a batch above a public size loses records down to it
  fixed_size,         // a subset of a fixed size, uniform among all, without replacement
  partition,          // a pass is a random order cut into batches
  balls_and_bins,     // in a pass every record takes part in one batch, uniform and independent
  cyclic_poisson,     // a pass visits every group of records once and samples within the group
  planned,            // turns by a public plan, noise correlated over it: one pass is the plan
};

// Which data sets are neighbours.
enum class NeighboringRelation {
  add_or_remove_one,  // one record is there or not
  replace_one,        // one record is exchanged for another
};

// One release of the Gaussian mechanism. Two events are equal when every number is.
struct Event {
  double noise_multiplier = 0;  // noise standard deviation / L2 sensitivity; 0 is no privacy
  Sampling sampling = Sampling::full_batch;
  double sampling_rate = 1;  // 1 for the full batch, a partition, balls and bins, and a plan
  std::int64_t batches = 1;  // of a pass
  bool paid = false;         // not the first batch of its pass: nothing is charged
  double cut = 0;            // truncated Poisson: the most probability that the batch lost records

  auto operator<=>(const Event&) const = default;
};

// Releases of each kind, in the order in which the kinds came first.
using EventCounts = std::vector<std::pair<Event, std::int64_t>>;

// "truncated_poisson" and so on, as in the ledger.
const char* name(Sampling sampling);
// Whether its sampling_rate may be another than 1, and whether its batches come in passes.
bool has_rate(Sampling sampling);
bool in_passes(Sampling sampling);

// Throws std::invalid_argument, naming `op`, unless noise_multiplier is finite and >= 0, and the
// other numbers are possible for the sampling: sampling_rate in [0, 1] or 1, cut in [0, 1] or 0,
// batches >= 1 or 1, paid only within passes.
void check_event(const char* op, const Event& event);

// {"mechanism":"gaussian","noise_multiplier":1.1,"sampling":"poisson","sampling_rate":0.01}, and
// "batches", "paid" or "cut" where the sampling has them; the numbers read back to the same bits.
std::string to_json(const Event& event);

// The event in a text that to_json wrote. Throws std::invalid_argument when a field is missing,
// unknown, of the wrong type or out of range.
Event event_from_json(const std::string& text);

}  // namespace sotto
