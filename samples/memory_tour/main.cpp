// Shows what each technique that saves memory costs and saves on one network; --help says how.

#include <cstdio>
#include <exception>
#include <stdexcept>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "samples/memory_tour/page.h"
#include "sotto/core/atomic_file.h"

namespace {

constexpr int failure = 1;
constexpr int bad_arguments = 2;

void write_text(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  sotto::write_file_atomically(path, [&](sotto::FileWriter& writer) { writer.write(text); });
}

int report(const std::exception& error, int status) {
  fmt::print(stderr, "memory_tour: {}\n", error.what());
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  sotto::memory_tour::Network network;
  std::string page, json;
  CLI::App app{
      "Counts the bytes of training steps of a network of linear layers with and without each\n"
      "technique that saves some, beside what the formulae of docs/memory.md say."};
  app.option_defaults()->always_capture_default();
  app.set_help_flag("-h,--help", "print this help and exit");
  app.add_option("--width", network.width, "features of each layer")->type_name("N");
  app.add_option("--layers", network.layers, "layers")->type_name("N");
  app.add_option("--batch", network.batch, "samples of a step; a multiple of 8")->type_name("N");
  app.add_option("--report", page, "write a page with the tables and a plot")->type_name("FILE");
  app.add_option("--json", json, "write the page's contents as JSON")->type_name("FILE");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    return report(error, bad_arguments);
  }
  try {
    const auto exercises = sotto::memory_tour::tour(network);
    fmt::print("{}", to_text(exercises));
    write_text(page, to_html(network, exercises));
    write_text(json, to_json(network, exercises).dump(2) + "\n");
  } catch (const std::invalid_argument& error) {
    return report(error, bad_arguments);
  } catch (const std::exception& error) {
    return report(error, failure);
  }
  return 0;
}
