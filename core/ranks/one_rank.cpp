#include "core/ranks/one_rank.h"

#include "core/ranks/blocks.h"
#include "core/ranks/host_name.h"
#include "core/ranks/rank_failure.h"

namespace sotto {

Pending OneRank::exchange(std::string_view place, std::vector<Bytes> send,
                          std::vector<Room> receive) {
  check_running();
  check_block_count(place, send.size(), 1);
  check_block_count(place, receive.size(), 1);
  copy_own_block(place, send[0], receive[0]);
  return Pending();
}

Pending OneRank::gather(std::string_view place, Bytes send, std::vector<Room> receive) {
  return exchange(place, {send}, std::move(receive));
}

std::vector<std::byte> OneRank::tell(std::string_view, Bytes bytes) {
  check_running();
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> OneRank::deal(std::string_view place, const std::vector<Bytes>& send) {
  check_block_count(place, send.size(), 1);
  return tell(place, send[0]);
}

std::vector<std::vector<std::byte>> OneRank::collect(std::string_view place, Bytes bytes) {
  return {tell(place, bytes)};
}

void OneRank::fail(std::string_view message) noexcept {
  if (!failure_) failure_ = message;
}

void OneRank::check_running() {
  if (failure_) throw RankFailure(0, *failure_, {{host_name(), "failed"}});
}

}  // namespace sotto
