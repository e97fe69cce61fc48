// Private schemas: what a schema must say about the numbers of a private table, paid for through
// the ledger.
#pragma once

#include <string>

#include "dp/ledger/ledger.h"
#include "nn/data/tables/schema_guess.h"

namespace sotto {

// The privacy that release_schema() spends.
struct SchemaBudget {
  double epsilon = 0.1;  // of all releases together
  double delta = 1e-5;   // the same
};

// Completes a draft (TableSchema::load_draft) from the rows of a table: finds range, mean and
// deviation of each number that has neither, and the mean for its missing values; and the
// categories of each column of that kind without a list, beside which rare texts are others. Two
// releases of the Gaussian mechanism over all units for numbers, and two for categories, cost the
// budget together:
//   1. the counts of units by powers of two, 0 and +-2^-20 to +-2^40. The range ends where counts
//      rise above the noise, so that rare values are clamped;
//   2. the moments of the values in these ranges;
//   3. the counts of units by a public hash of their texts;
//   4. for each hash whose count is above the noise, the counts by the byte at each of 33 places,
//      from which the text follows. Texts above 32 bytes are others.
// A user's first row alone counts. Header, number of units and the rest of the draft are
// public.
//
// The notes of the result say which columns were paid for. If none of them has a value that is
// frequent enough, it may lack inputs (TableSchema::validate). Throws, without a release:
// std::invalid_argument for a draft that lacks nothing, for a ledger that holds releases, and if
// the budget is too small to see values that an eighth of the units share, or its delta is not
// below 1 / units; SystemFailure where TableReader does.
SchemaGuess release_schema(const std::string& path, const TableSchema& draft, Ledger& ledger,
                           const SchemaBudget& budget);

}  // namespace sotto
