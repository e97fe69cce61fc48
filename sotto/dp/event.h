// What ran, in the words every accountant understands: one noisy release on one batch.
#pragma once

#include <compare>
#include <string>

namespace sotto {

// How the batch of a release was drawn.
enum class Sampling {
  full_batch,  // every record takes part
  poisson,     // every record takes part with probability `sampling_rate`, independently
};

// Which data sets are neighbours.
enum class Relation {
  add_or_remove_one,  // one record is there or not
  replace_one,        // one record is exchanged for another
};

// One release of the Gaussian mechanism. Two events are equal when every number is.
struct Event {
  double noise_multiplier = 0;  // noise standard deviation / L2 sensitivity; 0 is no privacy
  Sampling sampling = Sampling::full_batch;
  double sampling_rate = 1;  // 1 for the full batch

  auto operator<=>(const Event&) const = default;
};

// Throws std::invalid_argument, naming `op`, unless noise_multiplier is finite and >= 0 and
// sampling_rate lies in [0, 1] (Poisson) or is 1 (full batch).
void check_event(const char* op, const Event& event);

// {"mechanism":"gaussian","noise_multiplier":1.1,"sampling":"poisson","sampling_rate":0.01}; the
// numbers read back to the same bits.
std::string to_json(const Event& event);

// The event in a text that to_json wrote. Throws std::invalid_argument when a field is missing,
// unknown, of the wrong type or out of range.
Event event_from_json(const std::string& text);

}  // namespace sotto
