// conformance DIR [--f64|--f32|--both] [--engine portable|onednn] [--device NAME] [--kind K]
//             [--case NAME] [--verbose]
//
// Runs every case under DIR. Exit status: 0 when all pass or are skipped, 1 when one fails, 2 when
// one is not as the format says, DIR cannot be read or the usage is wrong.
#include <CLI/CLI.hpp>

#include <algorithm>

#include <fmt/format.h>

#include "sotto/core/devices.h"
#include "sotto/core/error.h"
#include "sotto/kernels/backend.h"
#include "tests/conformance/runner.h"

namespace {

using namespace sotto::conformance;

constexpr int some_failed = 1;
constexpr int bad_input = 2;

int run(const Selection& selection, const std::string& engine) {
  if (!engine.empty()) {
    sotto::set_cpu_engine(engine == "portable" ? sotto::CpuEngine::portable
                                               : sotto::CpuEngine::onednn);
  }
  const std::vector<Result> results = run_all(selection);
  if (results.empty()) {
    fmt::print(stderr, "conformance: {}: no cases\n", selection.folder.string());
    return bad_input;
  }
  print_report(results, selection.verbose);
  const auto any = [&](auto&& test) { return std::any_of(results.begin(), results.end(), test); };
  if (any([](const Result& result) { return result.malformed; })) return bad_input;
  return any([](const Result& result) { return result.outcome == Outcome::failed; }) ? some_failed
                                                                                     : 0;
}

}  // namespace

int main(int count, char** words) {
  CLI::App app("Runs conformance cases");
  Selection selection;
  std::string folder, engine, device = "cpu";
  bool only_f32 = false, only_f64 = false, both = false;
  app.add_option("dir", folder, "Folder of cases")->required();
  auto* f32 = app.add_flag("--f32", only_f32, "In single precision");
  auto* f64 = app.add_flag("--f64", only_f64, "In double precision")->excludes(f32);
  app.add_flag("--both", both, "In both (the default)")->excludes(f32)->excludes(f64);
  app.add_option("--engine", engine, "The CPU's engine")
      ->check(CLI::IsMember({"portable", "onednn"}));
  app.add_option("--device", device, "Where to compute: cpu, cuda or cuda:N");
  app.add_option("--kind", selection.kind, "Only cases of this kind");
  app.add_option("--case", selection.name, "Only the case of this name");
  app.add_flag("--verbose", selection.verbose, "Every deviation of a failing case");
  try {
    app.parse(count, words);
    selection.folder = folder;
    if (only_f32) selection.dtypes = {sotto::Dtype::f32};
    if (only_f64) selection.dtypes = {sotto::Dtype::f64};
    selection.device = sotto::device_named(device);
    return run(selection, engine);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : bad_input;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return bad_input;
  }
}
