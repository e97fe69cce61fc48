#include "samples/privacy_budget/progress.h"

#include <chrono>
#include <cstdio>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace sotto::budget {

namespace {

constexpr double patience = 1;
constexpr double redraw_seconds = 0.1;
constexpr const char* erase_line = "\r\x1b[K";

}  // namespace

Progress::Progress(std::function<void(const std::string&)> write, std::function<double()> seconds)
    : write_(std::move(write)), seconds_(std::move(seconds)), start_(seconds_()), drawn_(start_) {}

Progress Progress::on_terminal() {
  const bool terminal = isatty(STDERR_FILENO) != 0;
  return Progress(
      [terminal](const std::string& text) {
        if (terminal) std::fputs(text.c_str(), stderr);
      },
      [] {
        const auto now = std::chrono::steady_clock::now().time_since_epoch();
        return std::chrono::duration<double>(now).count();
      });
}

void Progress::begin(const std::string& what, int parts) {
  what_ = what;
  parts_ = parts;
  done_ = 0;
}

void Progress::advance() {
  ++done_;
  const double now = seconds_();
  if (now - start_ < patience || (visible_ && now - drawn_ < redraw_seconds)) return;
  drawn_ = now;
  visible_ = true;
  write_(fmt::format("{}{}: {} of {}", erase_line, what_, done_, parts_));
}

void Progress::clear() {
  if (visible_) write_(erase_line);
  visible_ = false;
}

}  // namespace sotto::budget
