#include "core/ranks/one_rank.h"

#include <utility>

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

Pending OneRank::all_gather(std::string_view place, Bytes send, std::vector<Room> receive) {
  return exchange(place, {send}, std::move(receive));
}

std::vector<std::byte> OneRank::broadcast(std::string_view, Bytes bytes) {
  check_running();
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> OneRank::scatter(std::string_view place, const std::vector<Bytes>& send) {
  check_block_count(place, send.size(), 1);
  return broadcast(place, send[0]);
}

std::vector<std::vector<std::byte>> OneRank::gather(std::string_view place, Bytes bytes) {
  return {broadcast(place, bytes)};
}

void OneRank::fail(std::string_view message) noexcept {
  if (!failure_) failure_ = message;
}

void OneRank::check_running() {
  if (failure_) throw RankFailure(0, *failure_, {{host_name(), "failed"}});
}

std::shared_ptr<Ranks> ranks_or_one(std::shared_ptr<Ranks> ranks) {
  return ranks ? std::move(ranks) : std::make_shared<OneRank>();
}

}  // namespace sotto
