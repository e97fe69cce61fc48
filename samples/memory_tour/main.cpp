// Shows what each technique that saves memory costs and saves on one network; --help says how.

#include <nlohmann/json.hpp>

#include "samples/command_line.h"
#include "samples/memory_tour/page.h"
#include "samples/program.h"

namespace {

int tour(int argc, const char* const* argv) {
  using namespace sotto;
  memory_tour::Network network;
  std::string page, json;
  samples::CommandLine line(
      "Counts the bytes of training steps of a network of linear layers with and without each\n"
      "technique that saves some, beside what the formulae of docs/memory.md say.");
  line.group("Network");
  line.option("--width", network.width, "features of each layer", "N");
  line.option("--layers", network.layers, "layers", "N");
  line.option("--batch", network.batch, "samples of a step; a multiple of 8", "N");
  line.group("Files");
  line.option("--report", page, "write a page with the tables and a plot", "FILE");
  line.option("--json", json, "write the page's contents as JSON", "FILE");
  if (!line.parse(argc, argv)) return 0;
  samples::check_writable("--report", page);
  samples::check_writable("--json", json);
  samples::check_distinct({page, json});
  const auto exercises = memory_tour::tour(network);
  samples::print_text(to_text(exercises));
  samples::write_texts({{page, to_html(network, exercises)},
                        {json, samples::json_text(to_json(network, exercises))}});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return sotto::samples::ending("memory_tour", [&] { return tour(argc, argv); });
}
