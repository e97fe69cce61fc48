// Phases of a training as people describe them (population, batch, epochs, ...), and what that is
// in events and steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <sotto/dp/event.h>

namespace sotto::budget {

// What was given of a phase, on the command line or in a text.
struct PhaseOptions {
  std::optional<double> noise_multiplier, batch, sampling_rate, cut, epochs;
  std::optional<std::int64_t> population, batches, largest_batch, steps;
  std::optional<std::string> sampling;
};

// Calls visit(name, member, type, what it is) for each of them.
template <class Options, class Visit>
void visit_phase_options(Options& o, Visit&& visit) {
  visit("noise-multiplier", o.noise_multiplier, "X", "noise deviation over clip bound");
  visit("sampling", o.sampling, "NAME", "how batches are drawn");
  visit("population", o.population, "N", "records of the data set");
  visit("batch", o.batch, "X", "records of a batch, expected or fixed");
  visit("sampling-rate", o.sampling_rate, "Q",
        "each record's probability to be in a batch, instead of --batch and --population");
  visit("batches", o.batches, "N",
        "batches of a pass, where there are passes; groups of cyclic_poisson");
  visit("largest-batch", o.largest_batch, "N",
        "truncated_poisson: records to which larger batches are cut");
  visit("cut", o.cut, "P",
        "truncated_poisson: the probability that a batch lost records, instead of --largest-batch");
  visit("steps", o.steps, "N", "steps, one noisy release each");
  visit("epochs", o.epochs, "X", "expected passes over the data, instead of --steps");
}

// What a command is to find out, and so is not given.
enum class Unknown { nothing, noise, steps, batch };

struct Phase {
  Event event;  // the first batch of a pass, where there are passes
  std::int64_t steps = 0;
  std::optional<std::int64_t> population;
  double steps_per_epoch = 0;  // 0: that has no meaning, or is not known
};

// How many batches of so many records a pass needs; also for expected numbers of records, and in
// units of the population.
std::int64_t batches_of_pass(std::int64_t population, double batch);
// Whether every batch has as many records as is said.
bool whole_batches(Sampling sampling);
// The samplings by name, in the order of `Sampling`.
std::vector<std::string> sampling_names();
// Throws std::invalid_argument when no sampling has the name.
Sampling sampling_called(const std::string& name);
// "add_or_remove_one" and "replace_one".
std::vector<std::string> relation_names();
std::string name(NeighboringRelation relation);
NeighboringRelation relation_called(const std::string& name);

// `base` with what "batch=256,steps=1000" says instead. Throws std::invalid_argument, naming the
// text, for what is no such list or says one thing twice.
PhaseOptions parse_phase(const std::string& text, PhaseOptions base);
// So for each of the texts, of which there is one at least. Throws also for an option of `base` in
// whose place each of them says something else.
std::vector<PhaseOptions> parse_phases(const std::vector<std::string>& texts,
                                       const PhaseOptions& base);

// Throws std::invalid_argument, naming options and values, when something that the sampling needs
// is missing, out of range, or contradicts something else.
Phase make_phase(const PhaseOptions& options, Unknown unknown = Unknown::nothing);

}  // namespace sotto::budget
