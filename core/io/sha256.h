// SHA-256 (FIPS 180-4): checksums that nobody can match with another text.
#pragma once

#include <string>
#include <string_view>

namespace sotto {

// Of the bytes of `message`, as 64 lower-case hexadecimal digits.
std::string sha256(std::string_view message);

}  // namespace sotto
