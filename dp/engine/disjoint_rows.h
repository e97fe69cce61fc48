// Checks that no two units share a row, on which the bound of a unit's influence relies.
#pragma once

#include <cstdint>
#include <span>

namespace sotto {

// Throws std::invalid_argument, with the row and both units, if two units share a row. units[k] has
// the rows rows[starts[k]] to rows[starts[k + 1] - 1], and may have a row several times.
void check_rows_apart(std::span<const std::int64_t> units, std::span<const std::int64_t> rows,
                      std::span<const std::int64_t> starts);

}  // namespace sotto
