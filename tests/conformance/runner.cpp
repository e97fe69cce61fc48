#include "tests/conformance/runner.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "tests/conformance/kinds.h"

namespace sotto::conformance {

namespace {

using Runner = void (*)(const Case&, Dtype, Comparison&);

const std::map<std::string, Runner> runners{
    {"op", run_op},           {"layer", run_layer},
    {"dp_step", run_dp_step}, {"distributed", run_distributed},
    {"optim", run_optim},     {"multilevel", run_multilevel},
    {"model", run_model},     {"tokenizer", run_tokenizer}};

Result malformed(Result result, const std::string& what) {
  result.outcome = Outcome::failed;
  result.malformed = true;
  result.lines = {"malformed: " + what};
  return result;
}

std::vector<Deviation> deviations_of(const Case& c, Runner run, Dtype dtype, bool tf32) {
  Comparison comparison(c, dtype, tf32);
  try {
    run(c, dtype, comparison);
    comparison.finish();
  } catch (const Skip&) {
    throw;
  } catch (const Malformed&) {
    throw;
  } catch (const std::exception& error) {
    comparison.fail(std::string("threw: ") + error.what());
  }
  return comparison.deviations();
}

Result run_case(const Case& c, const Selection& selection) {
  Result result{.kind = c.kind, .type = c.type, .name = c.name};
  std::vector<Deviation> all;
  for (const Dtype dtype : selection.dtypes) {
    for (Deviation& deviation : deviations_of(c, runners.at(c.kind), dtype, selection.tf32)) {
      result.single_precision = result.single_precision || deviation.single_precision;
      if (!deviation.single_precision)
        all.push_back({fmt::format("{}: {}", name(dtype), deviation.text), deviation.severity});
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Deviation& a, const Deviation& b) { return a.severity > b.severity; });
  for (const Deviation& deviation : all) result.lines.push_back(deviation.text);
  if (!all.empty()) result.outcome = Outcome::failed;
  return result;
}

// Runs `body`, and turns an exception into the outcome.
template <class F>
Result guarded(Result result, F&& body) {
  try {
    return body();
  } catch (const Skip& skip) {
    result.outcome = Outcome::skipped;
    result.reason = skip.what();
    return result;
  } catch (const Malformed& error) {
    return malformed(result, error.what());
  } catch (const std::exception& error) {
    result.outcome = Outcome::failed;
    result.lines = {std::string("threw: ") + error.what()};
    return result;
  }
}

Result run_row(const Json& table, const Json& row, Result result) {
  const auto accept = field<std::pair<double, double>>(row, "accept");
  const double got = run_accountant_row(table, row);
  if (got >= accept.first && got <= accept.second) return result;
  result.outcome = Outcome::failed;
  result.lines = {fmt::format("{}: got {:.12g}, accepted from {:.12g} to {:.12g}",
                              field<std::string>(row, "query"), got, accept.first, accept.second)};
  return result;
}

bool selected(const Selection& selection, const std::string& kind, const std::string& name) {
  return (selection.kind.empty() || selection.kind == kind) &&
         (selection.name.empty() || selection.name == name);
}

void run_table(const Selection& selection, const Json& table, std::vector<Result>& results) {
  const auto type = field<std::string>(table, "table");
  for (const Json& row : field<std::vector<Json>>(table, "rows")) {
    Result result{.kind = "accountant", .type = type};
    result.name = row.is_object() ? row.value("id", "?") : "?";
    if (!selected(selection, result.kind, result.name)) continue;
    results.push_back(guarded(result, [&] { return run_row(table, row, result); }));
  }
}

// Inputs go to the device; expected tensors stay.
Case on_device(Case c, Device device) {
  for (auto& [name, described] : c.tensors) {
    if (described.role != "expect") described.value = described.value.to(device);
  }
  return c;
}

void run_file(const Selection& selection, const std::filesystem::path& path,
              std::vector<Result>& results) {
  Result result{.kind = path.parent_path().filename(), .type = "?", .name = path.stem()};
  try {
    const Json body = read_json(path);
    const auto kind = field<std::string>(body, "kind");
    if (kind == "accountant") return run_table(selection, body, results);
    if (!runners.count(kind)) throw Malformed("kind is " + kind);
    const Case c = on_device(read_case(path), selection.device);
    result = {.kind = c.kind, .type = c.type, .name = c.name};
    if (!selected(selection, c.kind, c.name)) return;
    results.push_back(guarded(result, [&] { return run_case(c, selection); }));
  } catch (const Malformed& error) {
    if (selected(selection, result.kind, result.name))
      results.push_back(malformed(result, error.what()));
  }
}

// Folders of files that cases read: JSON files in them are no cases.
bool holds_inputs(const std::filesystem::path& folder) {
  const std::string name = folder.filename();
  return name == "checkpoints" || name == "adapters" || name == "files";
}

std::vector<std::filesystem::path> case_files(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> files;
  for (std::filesystem::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (at->is_directory() && holds_inputs(at->path())) at.disable_recursion_pending();
    const bool case_file =
        at->path().extension() == ".json" && at->path().filename() != "MANIFEST.json";
    if (case_file && at->is_regular_file()) files.push_back(at->path());
  }
  if (error)
    throw SystemFailure(fmt::format("conformance: {}: {}", folder.string(), error.message()));
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::vector<Result> run_all(const Selection& selection) {
  std::vector<Result> results;
  for (const auto& path : case_files(selection.folder)) run_file(selection, path, results);
  return results;
}

}  // namespace sotto::conformance
