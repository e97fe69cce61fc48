// Sets of units in few bits, to be sent to other ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sotto {

// Packs numbers from 0, in rising order: the gap before each in an exponential Golomb code (Teuhola
// 1978), whose order fits the gaps. A unit of a Poisson batch takes about log2(population / batch)
// + 2 bits; with all units of the population, each takes one.
std::vector<std::byte> packed_units(std::span<const std::int64_t> units);
// Returns the units whose code this is. Throws std::invalid_argument for bytes that encode no units
// below `population`.
std::vector<std::int64_t> unpacked_units(std::span<const std::byte> bytes, std::int64_t population);

}  // namespace sotto
