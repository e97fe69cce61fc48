// SHA-256 (FIPS 180-4): a cryptographic checksum.
#pragma once

#include <string>
#include <string_view>

namespace sotto {

// The hash of the bytes of `message`, as 64 lower-case hexadecimal digits.
std::string sha256(std::string_view message);

}  // namespace sotto
