// Programs with subcommands.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace sotto::samples {

struct Subcommand {
  const char* name;
  const char* about;  // a line of the help
  // Parses the arguments, of which the first is the name, and returns the exit status.
  std::function<int(int argc, const char* const* argv)> run;
};

struct ProgramHelp {
  const char* name;
  const char* about;     // a sentence
  const char* examples;  // lines
};

// Runs the subcommand that the arguments name, and returns the program's exit status (ending()).
int run_subcommand(const ProgramHelp& help, const std::vector<Subcommand>& commands, int argc,
                   const char* const* argv);

}  // namespace sotto::samples
