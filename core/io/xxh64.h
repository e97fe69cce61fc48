// XXH64 (Collet, xxHash's specification, version 0.1.1): 64 bits that tell damaged bytes from whole
// ones, many times faster than a disk. Who changes bytes on purpose can make it fit: see sha256.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sotto {

std::uint64_t xxh64(std::span<const std::byte> bytes, std::uint64_t seed = 0);

}  // namespace sotto
