#include "samples/training/option_files.h"

#include <filesystem>

#include "core/io/atomic_file.h"
#include "dp/ledger/ledger_text.h"
#include "samples/cli/program.h"

namespace sotto::samples {

namespace {

void check_writable_files(const Options& options) {
  const FileKind saved = options.resumed ? FileKind::tensors : FileKind::other;
  if (!options.save.empty()) {
    for (const std::string& path : {options.save, state_path(options.save)})
      check_writable("--save", path, saved);
  }
  check_writable("--report", options.report);
  check_writable("--json", options.json);
  std::vector<std::string> all = {options.report, options.json};
  if (!options.save.empty()) {
    all.insert(all.end(), {options.save, state_path(options.save), statistics_path(options.save)});
  }
  all.push_back(options.ledger_file());
  check_distinct(all);
}

// Refuses the ledger of other training. A run that ended before its first step may leave only a
// ledger, which counts nothing: it is used.
void check_ledger(const std::string& path, const Settings& settings) {
  std::error_code none;
  if (!std::filesystem::exists(path, none)) return;
  const std::string text = read_file(path);
  check(text.find('\n') != std::string::npos,
        "--save: {} broke off before its first line and counts nothing: remove it", path);
  const std::string problem =
      parse_ledger(text, path).contents.adoption_problem(header_of(settings));
  check(settings.privacy && problem.empty(), "--save: {} {}", path,
        problem.empty() ? "is the ledger of other training: give another name" : problem);
}

// A run whose ledger is not beside its state needs --ledger.
void check_ledger_is_there(const Options& options) {
  if (!options.resumed || !options.settings.privacy) return;
  const auto& section = options.resumed->section;
  const std::string counted = section ? section->ledger_file : "", file = options.ledger_file();
  std::error_code none;
  check(std::filesystem::exists(file, none) || counted.empty() ||
            counted == std::filesystem::absolute(file),
        "--resume: there is no {}: {} counts its releases in {}: give --ledger {}", file,
        options.save, counted, counted);
}

void check_continued_ledger(const TaskFacts& task, const Options& options) {
  check(!options.ledger.empty() || !task.ledger_required,
        "--ledger: is required with --data, whose releases it counts");
  if (options.ledger.empty()) return;
  std::error_code none;
  if (!std::filesystem::exists(options.ledger, none)) {
    check(task.ledger_begins, "--ledger: there is no {}", options.ledger);
    return check_writable("--ledger", options.ledger);
  }
  const LedgerHeader header =
      parse_ledger(read_file(options.ledger), options.ledger).contents.header;
  const LedgerHeader ours = header_of(options.settings);
  check(header == ours, "--ledger: {} counts {}, {}, and this training {}, {}", options.ledger,
        header.unit, relation_text(header.relation), ours.unit, relation_text(ours.relation));
}

}  // namespace

std::vector<std::shared_ptr<const void>> locks_of(const char* option, const std::string& name) {
  if (name.empty()) return {};
  return {lock_saved(option, name), lock_saved(option, state_path(name))};
}

void check_unused(const Options& options) {
  if (options.save.empty() || options.resumed) return;
  std::error_code none;
  const bool goes_on = std::filesystem::exists(state_path(options.save), none);
  for (const std::string& path : {options.save, state_path(options.save)}) {
    check(!std::filesystem::exists(path, none), "--save: {} exists already ({})", path,
          goes_on ? fmt::format("--resume {} continues it", options.save)
                  : "and has no state to continue from: give another name");
  }
  if (options.ledger.empty()) check_ledger(ledger_path(options.save), options.settings);
}

void check_files(Task& task, const Options& options) {
  check_ledger_is_there(options);
  check_continued_ledger(task.facts(), options);
  check_writable_files(options);
  for (const auto& [option, path] : task.facts().cache)
    check_writable(option.c_str(), path, FileKind::tensors);
}

}  // namespace sotto::samples
