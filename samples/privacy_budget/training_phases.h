// Phases of a training as users describe them (population, batch, epochs, ...), and the events and
// steps that they amount to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dp/event.h"

namespace sotto::budget {

// The options given for a phase, on the command line or in a text.
struct PhaseOptions {
  std::optional<double> noise_multiplier, batch, sampling_rate, truncation_probability, epochs;
  std::optional<std::int64_t> population, batches, max_batch_size, steps;
  std::optional<std::string> sampling;
};

// Calls visit(name, member, type, description) for each option.
template <class Options, class Visit>
void visit_phase_options(Options& o, Visit&& visit) {
  visit("noise-multiplier", o.noise_multiplier, "X", "noise standard deviation over clip bound");
  visit("sampling", o.sampling, "NAME", "how batches are sampled");
  visit("dataset-size", o.population, "N", "records in the data set");
  visit("batch-size", o.batch, "X", "records in a batch, expected or fixed");
  visit("sampling-rate", o.sampling_rate, "Q",
        "each record's probability to be in a batch, instead of --batch-size and --dataset-size");
  visit("batches-per-epoch", o.batches, "N",
        "batches of an epoch, for samplings by epoch; groups of cyclic_poisson");
  visit("max-batch-size", o.max_batch_size, "N", "truncated_poisson: maximum records of a batch");
  visit(
      "truncation-probability", o.truncation_probability, "P",
      "truncated_poisson: the probability that a batch is truncated, instead of --max-batch-size");
  visit("steps", o.steps, "N", "steps, one noisy release each");
  visit("epochs", o.epochs, "X", "expected passes over the data, instead of --steps");
}

// The unknown that a command computes, and that need not be given.
enum class Unknown { nothing, noise, steps, batch };

struct Phase {
  Event event;  // the first batch of an epoch, for samplings by epoch
  std::int64_t steps = 0;
  std::optional<std::int64_t> population;
  double steps_per_epoch = 0;  // 0 if undefined or unknown
};

// The number of batches of `batch` records in an epoch; also for expected numbers of records, and
// for fractions of the population.
std::int64_t batches_of_epoch(std::int64_t population, double batch);
// Returns whether every batch has exactly the given number of records.
bool whole_batches(Sampling sampling);
// "add_or_remove_one" and "replace_one".
std::vector<std::string> relation_names();
std::string name(NeighboringRelation relation);
NeighboringRelation parse_relation(const std::string& name);

// `base` with the values of "batch-size=256,steps=1000" in place of its own. Throws
// std::invalid_argument, with the text, for a malformed list or a name given twice.
PhaseOptions parse_phase(const std::string& text, PhaseOptions base);
// parse_phase for each of the texts, of which there is at least one. Throws also for an option of
// `base` that every text overrides.
std::vector<PhaseOptions> parse_phases(const std::vector<std::string>& texts,
                                       const PhaseOptions& base);

// Throws std::invalid_argument, with options and values, when something that the sampling needs is
// missing, out of range, or contradicts something else.
Phase make_phase(const PhaseOptions& options, Unknown unknown = Unknown::nothing);

}  // namespace sotto::budget
