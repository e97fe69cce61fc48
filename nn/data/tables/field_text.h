// The text of a table's field: as a number, and in messages.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sotto {

// The finite decimal number that the whole text is, with or without a sign and an exponent; 0 for
// one that is too small for a double.
std::optional<double> parse_number(std::string_view text);
// True for a decimal number above the largest double, or below its negative.
bool is_too_large(std::string_view text);

// The text in quotes, as it can be printed; of a long one the beginning and the length.
std::string shown(std::string_view text);

}  // namespace sotto
