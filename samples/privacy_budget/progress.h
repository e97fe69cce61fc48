// A progress line on the terminal for long computations; nothing for short ones.
#pragma once

#include <functional>
#include <string>

namespace sotto::budget {

class Progress {
 public:
  // Writes through `write`; `seconds` returns the time since some moment. The line appears one
  // second after the work began and changes at most ten times a second.
  Progress(std::function<void(const std::string&)> write, std::function<double()> seconds);
  // Writes to standard error if it is a terminal, else nowhere.
  static Progress on_terminal();

  // Names the computation and its number of parts.
  void begin(const std::string& what, int parts);
  // Counts a part as done.
  void advance();
  // Erases the line; call it before anything else is printed.
  void clear();

 private:
  std::function<void(const std::string&)> write_;
  std::function<double()> seconds_;
  double start_, drawn_;
  bool visible_ = false;
  std::string what_;
  int parts_ = 0, done_ = 0;
};

}  // namespace sotto::budget
