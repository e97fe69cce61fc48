// Shows where a training step's memory goes; --help says how.

#include <cstdio>
#include <exception>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>

#include "samples/footprint/options.h"
#include "samples/footprint/page.h"
#include "samples/footprint/run.h"
#include "sotto/core/atomic_file.h"
#include "sotto/core/parallel.h"

namespace {

constexpr int failure = 1;
constexpr int bad_arguments = 2;

void write_text(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  sotto::write_file_atomically(path, [&](sotto::FileWriter& writer) { writer.write(text); });
}

void show(const sotto::footprint::Options& options) {
  if (options.threads > 0) sotto::set_thread_count(options.threads);
  const sotto::footprint::Findings found = sotto::footprint::run(options);
  write_text(options.html, to_html(options, found));
  write_text(options.json, to_json(options, found).dump() + "\n");
  fmt::print("{}", to_text(found));
}

int report(const std::exception& error, int status) {
  fmt::print(stderr, "footprint: {}\n", error.what());
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto options = sotto::footprint::parse_options(argc, argv);
    if (options) show(*options);
    return 0;
  } catch (const std::invalid_argument& error) {
    return report(error, bad_arguments);
  } catch (const std::exception& error) {
    return report(error, failure);
  }
}
