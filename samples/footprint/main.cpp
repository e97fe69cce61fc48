// Shows where the memory of a training step goes; see --help.

#include <nlohmann/json.hpp>

#include <sotto/core/threads/parallel.h>
#include "samples/cli/program.h"
#include "samples/footprint/options.h"
#include "samples/footprint/page.h"
#include "samples/footprint/run.h"

namespace {

void show(const sotto::footprint::Options& options) {
  if (options.threads > 0) sotto::set_thread_count(options.threads);
  const sotto::footprint::Findings found = sotto::footprint::run(options);
  sotto::samples::print_text(to_text(found));
  sotto::samples::write_texts({{options.html, to_html(options, found)},
                               {options.json, sotto::samples::json_text(to_json(options, found))}});
}

}  // namespace

int main(int argc, char** argv) {
  return sotto::samples::ending("footprint", [&] {
    const auto options = sotto::footprint::parse_options(argc, argv);
    if (options) show(*options);
    return 0;
  });
}
