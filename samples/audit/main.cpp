// Audits private training of the sample mnist's network; see --help.

#include <nlohmann/json.hpp>

#include "core/threads/parallel.h"
#include "samples/audit/options.h"
#include "samples/audit/page.h"
#include "samples/audit/run.h"
#include "samples/cli/program.h"

namespace {

constexpr int contradicted = 3;

int audit(const sotto::audit::Options& options) {
  if (options.threads > 0) sotto::set_thread_count(options.threads);
  const auto found = sotto::audit::run(options, sotto::audit::load_data(options));
  sotto::samples::print_result(fmt::format("{}\n{}\n{}\n", found.one_run.in_words(),
                                           found.trade_off.in_words(), verdict(found)));
  sotto::samples::write_texts({{options.report, to_html(options, found)},
                               {options.json, sotto::samples::json_text(to_json(options, found))}});
  return found.contradicted() || found.doubtful() ? contradicted : 0;
}

}  // namespace

int main(int argc, char** argv) {
  return sotto::samples::ending("audit", [&] {
    const std::optional<sotto::audit::Options> options = sotto::audit::parse_options(argc, argv);
    return options ? audit(*options) : 0;
  });
}
