#include "samples/training/data_source.h"

#include <algorithm>
#include <cmath>

#include "samples/cli/program.h"
#include "samples/training/settings.h"

namespace sotto::samples {

void check_source(const DataSource& source) {
  const Files* const files = files_of(source);
  check(files == nullptr || !files->train.empty(), "--test: needs --data");
}

const Files* files_of(const DataSource& source) { return std::get_if<Files>(&source); }

std::string text_of(const DataSource& source) {
  const Files* const files = files_of(source);
  return files != nullptr ? "from " + files->train : std::get<MadeUp>(source).what;
}

bool tests_on_private_data(const DataSource& source) {
  const Files* const files = files_of(source);
  return files != nullptr && files->test.empty();
}

void check_test_fraction(double fraction) {
  require(fraction > 0 && fraction < 1, "--test-fraction", fraction, "between 0 and 1");
}

Data divided(std::pair<Dataset, Dataset> parts, const char* option, double value) {
  auto& [train, test] = parts;
  check(train.size() > 0 && test.size() > 0,
        "{}: {} of {} units leaves {} training and {} test rows", option, value,
        train.unit_count() + test.unit_count(), train.size(), test.size());
  return {.train = std::move(train), .test = std::move(test)};
}

void expect_batch(Settings& s) {
  constexpr double max_units = 1e9;
  const auto batch = static_cast<std::int64_t>(std::ceil(std::min(s.batch, max_units)));
  s.train_size = std::max(s.train_size, batch);
}

}  // namespace sotto::samples
