// The text of a table's field: as a number, and in messages.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sotto {

// The finite decimal number that the whole text is, with or without a sign and an exponent.
std::optional<double> parse_number(std::string_view text);

// The text in quotes, as it can be printed; of a long one the beginning and the length.
std::string shown(std::string_view text);

}  // namespace sotto
