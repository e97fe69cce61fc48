// conformance DIR [--f64|--f32|--tf32|--f16|--bf16|--both] [--engine portable|onednn]
//             [--device NAME] [--kind K] [--case NAME] [--verbose]
//
// Runs every case under DIR. Exit status: 0 when all pass or are skipped, 1 when one fails, 2 when
// one violates the format, DIR cannot be read or the usage is wrong.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "core/devices.h"
#include "core/error.h"
#include "kernels/backend.h"
#include "kernels/tf32.h"
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
  const std::map<std::string, std::vector<sotto::Dtype>> types{
      {"f64", {sotto::Dtype::f64}},   {"f32", {sotto::Dtype::f32}},
      {"tf32", {sotto::Dtype::f32}},  {"f16", {sotto::Dtype::f16}},
      {"bf16", {sotto::Dtype::bf16}}, {"both", {sotto::Dtype::f32, sotto::Dtype::f64}}};
  std::map<std::string, bool> asked;
  app.add_option("dir", folder, "Folder of cases")->required();
  auto* const type = app.add_option_group("type")->require_option(0, 1);
  type->add_flag("--f32", asked["f32"], "In single precision");
  type->add_flag("--tf32", asked["tf32"],
                 "In single precision whose factors a GPU rounds to 11 bits");
  type->add_flag("--f64", asked["f64"], "In double precision");
  type->add_flag("--both", asked["both"], "In both (the default)");
  type->add_flag("--f16", asked["f16"], "In half precision: operands, or tapes of that precision");
  type->add_flag("--bf16", asked["bf16"], "The same in bfloat16");
  app.add_option("--engine", engine, "The CPU's engine")
      ->check(CLI::IsMember({"portable", "onednn"}));
  app.add_option("--device", device, "Device to compute on: cpu, cuda or cuda:N");
  app.add_option("--kind", selection.kind, "Only cases of this kind");
  app.add_option("--case", selection.name, "Only the case of this name");
  app.add_flag("--verbose", selection.verbose, "Every deviation of a failing case");
  try {
    app.parse(count, words);
    selection.folder = folder;
    for (const auto& [name, wanted] : asked) {
      if (wanted) selection.dtypes = types.at(name);
    }
    selection.tf32 = asked["tf32"];
    if (selection.tf32) sotto::use_tf32(true);
    selection.device = sotto::parse_device(device);
    sotto::check(!selection.tf32 || selection.device != sotto::cpu,
                 "--tf32: the CPU rounds no factors; --device names a GPU");
    return run(selection, engine);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : bad_input;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return bad_input;
  }
}
