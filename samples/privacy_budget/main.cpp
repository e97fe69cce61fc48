// Answers questions about the privacy of a training; --help says which.

#include <cstdio>
#include <exception>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>

#include "samples/privacy_budget/commands.h"
#include "samples/privacy_budget/options.h"
#include "samples/privacy_budget/progress.h"
#include "sotto/core/atomic_file.h"
#include "sotto/core/error.h"

namespace {

using namespace sotto::budget;

constexpr int failure = 1;
constexpr int bad_arguments = 2;

int report(const std::exception& error, int status) {
  fmt::print(stderr, "privacy_budget: {}\n", error.what());
  return status;
}

void show(const Options& options) {
  Progress progress = Progress::on_terminal();
  Answer found = answer(options, progress);
  progress.clear();
  found.json["notes"] = found.notes;
  if (!options.html.empty()) {
    const std::string page = to_html(found);
    sotto::write_file_atomically(options.html,
                                 [&](sotto::FileWriter& writer) { writer.write(page); });
  }
  fmt::print("{}", options.json ? found.json.dump(2) + "\n" : to_text(found));
  if (std::fflush(stdout) != 0) throw sotto::SystemFailure("cannot write the answer");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::optional<Options> options = parse_options(argc, argv);
    if (options) show(*options);
    return 0;
  } catch (const std::invalid_argument& error) {
    return report(error, bad_arguments);
  } catch (const std::exception& error) {
    return report(error, failure);
  }
}
