#include "core/ranks/blocks.h"

#include <cstring>

#include "core/error.h"

namespace sotto {

void copy_own_block(std::string_view place, Ranks::Bytes send, Ranks::Room receive) {
  check(send.size() == receive.size(), "{}: a rank sends itself {} bytes and has room for {}",
        place, send.size(), receive.size());
  // A block may already lie where it belongs.
  if (!send.empty()) std::memmove(receive.data(), send.data(), send.size());
}

void check_block_count(std::string_view place, std::size_t blocks, int ranks) {
  check(blocks == static_cast<std::size_t>(ranks), "{}: {} blocks for {} ranks", place, blocks,
        ranks);
}

}  // namespace sotto
