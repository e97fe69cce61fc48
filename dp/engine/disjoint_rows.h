// Units have rows of their own: what bounds the influence of a unit counts on it.
#pragma once

#include <cstdint>
#include <span>

namespace sotto {

// Throws std::invalid_argument, with the row and both units, where two units have one row.
// units[k] has the rows starts[k] .. starts[k + 1] - 1 of `rows`, of which one may come again.
void check_rows_apart(std::span<const std::int64_t> units, std::span<const std::int64_t> rows,
                      std::span<const std::int64_t> starts);

}  // namespace sotto
