// A line on the terminal that says how far long work has come; nothing for short work.
#pragma once

#include <functional>
#include <string>

namespace sotto::budget {

class Progress {
 public:
  // Writes through `write`, and asks `seconds`, the time since some moment, whether it is time to.
  // A line appears one second after the work began, and changes ten times a second at most.
  Progress(std::function<void(const std::string&)> write, std::function<double()> seconds);
  // On the terminal that standard error is; silent where it is none.
  static Progress on_terminal();

  // What is being computed, and in how many parts.
  void begin(const std::string& what, int parts);
  // One part more is done.
  void advance();
  // Takes the line away; before anything else is printed.
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
