// Answers questions about the privacy of a training; see --help.

#include "samples/cli/program.h"
#include "samples/privacy_budget/commands.h"
#include "samples/privacy_budget/options.h"
#include "samples/privacy_budget/progress.h"

namespace {

using namespace sotto::budget;

void show(const Options& options) {
  Progress progress = Progress::on_terminal();
  Answer found = answer(options, progress);
  progress.clear();
  found.json["notes"] = found.notes;
  sotto::samples::print_text(options.json ? sotto::samples::json_text(found.json) : to_text(found));
  if (!options.html.empty()) sotto::samples::write_text({options.html, to_html(found)});
  if (!found.failure.empty()) throw sotto::SystemFailure(found.failure);
}

}  // namespace

int main(int argc, char** argv) {
  return sotto::samples::ending("privacy_budget", [&] {
    const std::optional<Options> options = parse_options(argc, argv);
    if (options) show(*options);
    return 0;
  });
}
