// Shows the cost and the saving of each memory technique on one network; see --help.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "samples/cli/command_line.h"
#include "samples/cli/program.h"
#include "samples/memory_tour/page.h"

namespace {

using sotto::memory_tour::Network;

constexpr std::int64_t max_width = 1 << 20, max_layers = 1 << 12, max_batch_size = 1 << 24;

// The maximum held: Adam's parameters, gradients and two states, and each layer's result with its
// gradient.
double bytes_of(const Network& network) {
  const auto width = static_cast<double>(network.width);
  const double layers = static_cast<double>(network.layers);
  const double kept = 2 * (layers + 1) * static_cast<double>(network.batch) * width;
  return sizeof(float) * (4 * layers * width * width + kept);
}

void check_numbers(const Network& network) {
  using sotto::samples::require;
  const auto range = [](const char* option, std::int64_t given, std::int64_t max) {
    require(given >= 1 && given <= max, option, given, fmt::format("from 1 to {}", max));
  };
  range("--width", network.width, max_width);
  range("--layers", network.layers, max_layers);
  range("--batch-size", network.batch, max_batch_size);
  require(network.batch % sotto::memory_tour::max_parts == 0, "--batch-size", network.batch,
          fmt::format("a multiple of {}", sotto::memory_tour::max_parts));
  sotto::samples::check_fits("--width, --layers, --batch-size", bytes_of(network));
}

int tour(int argc, const char* const* argv) {
  using namespace sotto;
  Network network;
  std::string page, json;
  samples::CommandLine line(
      "Counts the bytes of training steps of a network of linear layers with and without each\n"
      "technique that saves some, and compares them with the formulas of "
      "docs/appendix/memory-notes.md.");
  line.group("Network");
  line.option("--width", network.width, "features of each layer", "N");
  line.option("--layers", network.layers, "layers", "N");
  line.option("--batch-size", network.batch, "samples of a step; a multiple of 8", "N");
  line.group("Files");
  line.option("--report", page, "write a page with the tables and a plot", "FILE");
  line.option("--json", json, "write the page's contents as JSON", "FILE");
  if (!line.parse(argc, argv)) return 0;
  check_numbers(network);
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
