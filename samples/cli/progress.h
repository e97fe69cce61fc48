// The progress of a run: a bar on a terminal, else a line for each evaluation.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace sotto::samples {

// Formats epsilon as "2.94" for 2.9312.
inline constexpr int digits_of_epsilon = 3;
// Formats "60", "12.3", "0.25".
std::string epochs_text(double epochs);
// Formats "212 s".
std::string seconds_text(double seconds);

// A number that tells how good a model is.
struct Measure {
  const char* name = "accuracy";
  bool percent = true;  // shown in percent; otherwise as it is
};
// "98.12 %", or "0.3412".
std::string text_of(const Measure& measure, double value);

class Progress {
 public:
  struct Plan {
    std::int64_t first_step = 0;  // steps made before this run began
    // The planned number of steps, including first_step.
    std::int64_t steps = 1;
    double epochs = 1;
    double batch = 1;  // expected units in a step, a public number
    Measure measure = {};
    const char* held_out = "test";  // the data that it is measured on
    bool secret_measure = false;    // the guarantee does not cover the measure
    bool quiet = false;
  };
  struct State {
    std::int64_t step = 0;
    std::optional<double> measure;  // on the test data
    std::optional<double> epsilon;
  };

  explicit Progress(const Plan& plan);
  // Redraws the bar after a step, a few times a second.
  void stepped(const State& state);
  // Prints a line after an evaluation, if standard output is not a terminal.
  void evaluated(const State& state);
  // Erases the bar.
  void clear();

 private:
  std::string measure(double value) const;
  std::string line(const State& state) const;
  std::string bar(const State& state, int width) const;
  double steps_per_second(std::int64_t step) const;
  void draw(const State& state);

  Plan plan_;
  bool terminal_;
  std::chrono::steady_clock::time_point start_, drawn_;
};

}  // namespace sotto::samples
