// The event that every accountant understands: one noisy release on one batch.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sotto {

// The sampling of a release's batch. The last four are drawn in epochs of several batches, and the
// first batch of an epoch is charged for all: a record takes part in at most one of them, or the
// noise multiplier is that of all of them together. docs/appendix/proofs-accounting.md says which
// accountant has a proof for which.
enum class Sampling {
  full_batch,         // every record takes part
  poisson,            // every record takes part with probability `sampling_rate`, independently
  truncated_poisson,  // as Poisson, but a batch above a public size is truncated to it
  fixed_size,         // a subset of a fixed size, uniform among all, without replacement
  partition,          // an epoch is a random order of the records cut into batches
  balls_and_bins,     // in an epoch every record takes part in one batch, uniform and independent
  cyclic_poisson,     // an epoch visits every group of records once and samples within the group
  planned,            // turns by a public plan, noise correlated over it: one epoch is the plan
};

// How two neighbouring data sets differ: the relation that epsilon and delta refer to.
enum class NeighboringRelation {
  add_or_remove_one,  // one record is present or absent
  replace_one,        // one record is replaced by another
};

// One release of the Gaussian mechanism. Two events are equal when all numbers are.
struct Event {
  double noise_multiplier = 0;  // noise standard deviation / L2 sensitivity; 0 is no privacy
  Sampling sampling = Sampling::full_batch;  // of its batch
  double sampling_rate = 1;           // 1 for full_batch, partition, balls_and_bins and planned
  std::int64_t batches = 1;           // of an epoch
  bool paid = false;                  // already charged with the first batch of its epoch
  double truncation_probability = 0;  // upper bound, for truncated Poisson

  // Orders by the members, in their order.
  auto operator<=>(const Event&) const = default;
};

// The number of releases of each kind, in the order in which the kinds first occurred.
using EventCounts = std::vector<std::pair<Event, std::int64_t>>;

// The sampling's name in the ledger: "truncated_poisson" and so on.
const char* name(Sampling sampling);
// Returns the sampling of that name. Throws std::invalid_argument, with `op` first, if none has it.
Sampling parse_sampling(const char* op, const std::string& name);
// The names, in the order of `Sampling`.
std::vector<std::string> sampling_names();
// Returns whether the sampling has a sampling_rate, and whether its batches come in epochs.
bool has_rate(Sampling sampling);
// Returns whether the batches of the sampling come in epochs.
bool in_epochs(Sampling sampling);

// Throws std::invalid_argument, with `op` first, unless noise_multiplier is finite and >= 0, and
// the other numbers are possible for the sampling: sampling_rate in [0, 1] or 1,
// truncation_probability in [0, 1] or 0, batches >= 1 or 1, paid only within epochs.
void check_event(const char* op, const Event& event);

// The event as
// {"mechanism":"gaussian","noise_multiplier":1.1,"sampling":"poisson","sampling_rate":0.01}, with
// "batches", "paid" or "cut" (the truncation probability) if the sampling has them. The numbers
// read back to the same bits.
std::string to_json(const Event& event);

// Parses the text of to_json. Throws std::invalid_argument when a field is missing, unknown, of the
// wrong type or out of range.
Event event_from_json(const std::string& text);

}  // namespace sotto
