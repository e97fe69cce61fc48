#include "samples/cli/subcommands.h"

#include <algorithm>

#include "core/io/utf8.h"
#include "core/join.h"
#include "samples/cli/program.h"

namespace sotto::samples {

namespace {

std::string help_text(const ProgramHelp& help, const std::vector<Subcommand>& commands) {
  std::string text = fmt::format(
      "{0}\n\nUsage: {1} COMMAND [OPTIONS]; {1} COMMAND --help lists the options of a "
      "command.\n\nSubcommands:\n",
      help.about, program_file(help.name));
  for (const Subcommand& command : commands)
    text += fmt::format("  {:<10}  {}\n", command.name, command.about);
  return text + "\nFor example:\n" + help.examples;
}

}  // namespace

int run_subcommand(const ProgramHelp& help, const std::vector<Subcommand>& commands, int argc,
                   const char* const* argv) {
  return ending(help.name, [&] {
    const std::string wanted = argc > 1 ? argv[1] : "";
    if (wanted == "--help" || wanted == "-h") {
      print_text(help_text(help, commands));
      return 0;
    }
    std::vector<std::string> names;
    for (const Subcommand& command : commands) names.emplace_back(command.name);
    const auto found = std::find(names.begin(), names.end(), wanted);
    check(found != names.end(), "{}: give one of {} (--help says more)",
          wanted.empty() ? "no command" : "no command is called " + printable(wanted),
          join(names, ", "));
    const std::string name = program_file(help.name) + " " + wanted;  // for the command's help
    std::vector<const char*> words(argv + 1, argv + argc);
    words[0] = name.c_str();
    return commands[static_cast<std::size_t>(found - names.begin())].run(argc - 1, words.data());
  });
}

}  // namespace sotto::samples
