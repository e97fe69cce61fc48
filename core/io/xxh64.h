// XXH64 (Collet, xxHash specification 0.1.1): a 64-bit checksum that detects accidental damage,
// many times faster than a disk. It does not resist deliberate changes; see sha256.h for that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sotto {

// Returns the 64-bit hash of the bytes for this seed.
std::uint64_t xxh64(std::span<const std::byte> bytes, std::uint64_t seed = 0);

}  // namespace sotto
