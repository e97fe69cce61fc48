// No two units share a row: the bound on a unit's influence relies on it.
#pragma once

#include <cstdint>
#include <span>

namespace sotto {

// Throws std::invalid_argument, with the row and both units, where two units share a row. units[k]
// has the rows starts[k] .. starts[k + 1] - 1 of `rows`, and may have a row several times.
void check_rows_apart(std::span<const std::int64_t> units, std::span<const std::int64_t> rows,
                      std::span<const std::int64_t> starts);

}  // namespace sotto
