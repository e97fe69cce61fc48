// A table of people whom the program makes up, for a first try without a file.
#pragma once

#include <cstdint>
#include <string>

#include "nn/data/tables/table_schema.h"

namespace sotto::tabular {

// The table's schema: age, years at school, city, work and hours, of which whether a person rides a
// bicycle to work depends, by a rule with chance in it.
TableSchema people_schema();
// Rows first, ..., first + count - 1 of an endless table, as CSV with a header: a function of the
// seed.
std::string made_up_people(std::int64_t count, std::uint64_t seed, std::int64_t first = 0);

}  // namespace sotto::tabular
