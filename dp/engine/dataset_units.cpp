#include "dp/engine/dataset_units.h"

#include <memory>
#include <vector>

namespace sotto {

EngineOptions with_units_of(const Dataset& data, EngineOptions options) {
  if (data.units.empty()) return options;
  check(!options.rows_of_unit, "Engine: the data set names its units, and so does rows_of_unit");
  // Both also where each unit has one sample: neither an error nor how sums are formed, and with it
  // the sensitivity, may say whether somebody has a second one.
  check(options.unit != LedgerHeader{}.unit,
        "Engine: the data set names its units, where unit says \"{}\" (say who they are)",
        options.unit);
  const auto rows =
      std::make_shared<const std::vector<std::vector<std::int64_t>>>(data.rows_of_units());
  options.rows_of_unit = [rows](std::int64_t unit) {
    return (*rows)[static_cast<std::size_t>(unit)];
  };
  return options;
}

}  // namespace sotto
