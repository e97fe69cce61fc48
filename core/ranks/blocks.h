// Checks and moves that operations of all kinds of ranks share.
#pragma once

#include <string_view>
#include <vector>

#include "core/ranks/ranks.h"

namespace sotto {

// Copies a rank's block for itself. Throws std::invalid_argument if the sizes differ.
void copy_own_block(std::string_view place, Ranks::Bytes send, Ranks::Room receive);
// Throws std::invalid_argument unless there is one block for each rank.
void check_block_count(std::string_view place, std::size_t blocks, int ranks);

}  // namespace sotto
