// Shows where the memory of a training step goes; see --help.

#include <nlohmann/json.hpp>

#include "core/threads/parallel.h"
#include "samples/cli/program.h"
#include "samples/memory_profile/options.h"
#include "samples/memory_profile/page.h"
#include "samples/memory_profile/run.h"

namespace {

void show(const sotto::memory_profile::Options& options) {
  if (options.threads > 0) sotto::set_thread_count(options.threads);
  const sotto::memory_profile::StepProfile found = sotto::memory_profile::run(options);
  sotto::samples::print_text(to_text(found));
  sotto::samples::write_texts({{options.html, to_html(options, found)},
                               {options.json, sotto::samples::json_text(to_json(options, found))}});
}

}  // namespace

int main(int argc, char** argv) {
  return sotto::samples::ending("memory_profile", [&] {
    const auto options = sotto::memory_profile::parse_options(argc, argv);
    if (options) show(*options);
    return 0;
  });
}
