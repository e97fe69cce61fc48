#include "samples/cli/progress.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "dp/numerics/directed_rounding.h"
#include "samples/cli/program.h"

namespace sotto::samples {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double redraw_seconds = 0.1;
constexpr int usual_width = 80;
constexpr int widest_bar = 40;
constexpr int narrowest_bar = 8;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int terminal_width() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return usual_width;
  return size.ws_col;
}

// Counts characters, not bytes.
int length(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

std::string time_left(double seconds) {
  if (!std::isfinite(seconds)) return "? left";
  const auto whole = std::llround(seconds);
  if (whole >= 3600) return fmt::format("{} h {:02} min left", whole / 3600, whole % 3600 / 60);
  if (whole >= 60) return fmt::format("{} min {:02} s left", whole / 60, whole % 60);
  return fmt::format("{} s left", whole);
}

}  // namespace

std::string epochs_text(double epochs) {
  return epochs < 100 ? fmt::format("{:.3g}", epochs) : fmt::format("{:.0f}", epochs);
}

std::string seconds_text(double seconds) {
  return seconds < 10 ? fmt::format("{:.1f} s", seconds) : fmt::format("{:.0f} s", seconds);
}

std::string text_of(const Measure& measure, double value) {
  return measure.percent ? fmt::format("{:.2f} %", 100 * value) : fmt::format("{:.4f}", value);
}

Progress::Progress(const Plan& plan)
    : plan_(plan), terminal_(isatty(STDOUT_FILENO) != 0), start_(Clock::now()) {}

void Progress::stepped(const State& state) {
  if (!terminal_ || plan_.quiet) return;
  if (drawn_ != Clock::time_point() && seconds_since(drawn_) < redraw_seconds) return;
  draw(state);
}

void Progress::evaluated(const State& state) {
  if (plan_.quiet) return;
  if (terminal_) return draw(state);
  print("{}\n", line(state));
}

void Progress::clear() {
  if (!terminal_ || plan_.quiet || drawn_ == Clock::time_point()) return;
  print("\r{}\r", "\x1b[K");
}

void Progress::draw(const State& state) {
  drawn_ = Clock::now();
  print("\r{}{}", bar(state, terminal_width() - 1), "\x1b[K");
}

double Progress::steps_per_second(std::int64_t step) const {
  return static_cast<double>(step - plan_.first_step) / seconds_since(start_);
}

std::string Progress::measure(double value) const {
  return text_of(plan_.measure, value) + (plan_.secret_measure ? " (NOT PRIVATE)" : "");
}

std::string Progress::line(const State& state) const {
  const double done = static_cast<double>(state.step) / static_cast<double>(plan_.steps);
  const double rate = steps_per_second(state.step);
  std::string text = fmt::format("epoch {:.2f}/{}  step {}/{}", done * plan_.epochs,
                                 epochs_text(plan_.epochs), state.step, plan_.steps);
  if (state.measure)
    text += fmt::format("  {} {} {}", plan_.held_out, plan_.measure.name, measure(*state.measure));
  text += state.epsilon ? fmt::format("  ε = {}", epsilon_text(*state.epsilon, digits_of_epsilon))
                        : "  no privacy";
  return text + fmt::format("  {:.0f} samples/s  {}", rate * plan_.batch,
                            time_left(static_cast<double>(plan_.steps - state.step) / rate));
}

std::string Progress::bar(const State& state, int width) const {
  const double done = static_cast<double>(state.step) / static_cast<double>(plan_.steps);
  const double rate = steps_per_second(state.step);
  // The parts of the line.
  std::string parts[] = {
      fmt::format("  {}", time_left(static_cast<double>(plan_.steps - state.step) / rate)),
      state.measure ? "  " + measure(*state.measure) : "",
      state.epsilon ? "  ε " + epsilon_text(*state.epsilon, digits_of_epsilon) : "  no privacy",
      fmt::format("  {:.0f} samples/s", rate * plan_.batch),
  };
  std::string head = fmt::format("epoch {:.1f}/{}", done * plan_.epochs, epochs_text(plan_.epochs));
  std::string tail;
  for (const int k : {1, 2, 3, 0}) tail += parts[k];
  for (const int dropped : {3, 0, 1}) {
    if (length(head) + length(tail) + narrowest_bar + 2 <= width) break;
    parts[dropped].clear();
    tail = parts[1] + parts[2] + parts[3] + parts[0];
  }
  const int cells = std::clamp(width - length(head) - length(tail) - 2, 0, widest_bar);
  const int full = std::clamp(static_cast<int>(done * cells), 0, cells);
  if (cells < narrowest_bar) return length(head) + length(tail) <= width ? head + tail : tail;
  std::string body;
  for (int k = 0; k < cells; ++k) body += k < full ? "━" : "·";
  return fmt::format("{}  {}{}", head, body, tail);
}

}  // namespace sotto::samples
