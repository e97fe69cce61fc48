// Audits private training of the network of the sample mnist; --help says how.

#include <cstdio>
#include <exception>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>

#include "samples/audit/options.h"
#include "samples/audit/page.h"
#include "samples/audit/run.h"
#include "sotto/core/atomic_file.h"
#include "sotto/core/parallel.h"

namespace {

constexpr int failure = 1;
constexpr int bad_arguments = 2;
constexpr int contradicted = 3;

void write_text(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  sotto::write_file_atomically(path, [&](sotto::FileWriter& writer) { writer.write(text); });
}

int audit(const sotto::audit::Options& options) {
  if (options.threads > 0) sotto::set_thread_count(options.threads);
  const auto found = sotto::audit::run(options, sotto::audit::load_data(options));
  write_text(options.report, to_html(options, found));
  write_text(options.json, to_json(options, found).dump(2) + "\n");
  fmt::print("{}\n{}\n{}\n", found.one_run.in_words(), found.trade_off.in_words(), verdict(found));
  return found.contradicted() || found.doubtful() ? contradicted : 0;
}

int report(const std::exception& error, int status) {
  fmt::print(stderr, "audit: {}\n", error.what());
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::optional<sotto::audit::Options> options = sotto::audit::parse_options(argc, argv);
    return options ? audit(*options) : 0;
  } catch (const std::invalid_argument& error) {
    return report(error, bad_arguments);
  } catch (const std::exception& error) {
    return report(error, failure);
  }
}
