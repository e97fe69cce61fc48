// Trains a network to read digits with differential privacy; --help says how.

#include <cstdio>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>

#include "samples/mnist/options.h"
#include "samples/mnist/run.h"

namespace {

constexpr int failure = 1;
constexpr int bad_arguments = 2;

int report(const std::exception& error, int status) {
  const std::string_view text = error.what();
  // What reads the data says its own name, which is ours.
  fmt::print(stderr, "{}{}\n", text.starts_with("mnist: ") ? "" : "mnist: ", text);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  std::optional<sotto::mnist::Options> options;
  sotto::mnist::Data data;
  try {
    options = sotto::mnist::parse_options(argc, argv);
    if (!options) return 0;
    data = sotto::mnist::prepare(*options);
  } catch (const std::invalid_argument& error) {
    return report(error, bad_arguments);
  } catch (const std::exception& error) {
    return report(error, failure);
  }
  try {
    sotto::mnist::watch_for_signals();
    return sotto::mnist::run(*options, data);
  } catch (const std::exception& error) {
    return report(error, failure);
  }
}
