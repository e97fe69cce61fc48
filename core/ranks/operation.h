// An operation of ranks under way, and the notices that ranks send each other about it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/ranks/link.h"

namespace sotto {

using RankClock = std::chrono::steady_clock;

enum class NoticeKind : std::uint32_t {
  exchange,
  all_gather,
  broadcast,
  scatter,
  gather,
  heartbeat,
  failure,
  end
};

std::string_view name(NoticeKind kind);

// The beginning of every notice; a text follows: of an operation its place, of a heartbeat what the
// rank is doing, of a failure its cause.
struct NoticeHead {
  std::uint64_t number = 0;  // of the operation; of a failure the rank
  std::uint64_t digest = 0;  // of the place
  std::uint64_t bytes = 0;   // that follow for the operation
  NoticeKind kind = NoticeKind::heartbeat;
  std::uint32_t by_itself = 0;  // 1: the rank that reports the failure failed
};

struct ReadNotice {
  NoticeHead head;
  std::string text;
};

// Longer texts are cut off.
std::vector<std::byte> write_notice(const NoticeHead& head, std::string_view text);
ReadNotice read_notice(Ranks::Bytes bytes);

struct Operation {
  // One other rank's part in it.
  struct Part {
    bool sends = false;    // whether this rank sends to it
    bool expects = false;  // whether this rank receives from it
    Ranks::Bytes out;
    Ranks::Room room;
    bool any_size = false;           // resize `grown` to the incoming message
    std::vector<std::byte> grown{};  // where bytes of any size arrive
    bool arrived = false;            // whether the other rank has begun the operation
    std::unique_ptr<Link::Transfer> sending, receiving;

    bool done() const { return arrived == expects && !sending && !receiving; }
  };

  Operation(NoticeKind kind, std::string_view place, int ranks);
  // `number 3, exchange "Engine: sums"`.
  std::string text() const;

  NoticeKind kind;
  std::string place;
  std::uint64_t digest;
  std::uint64_t number = 0;
  std::vector<Part> parts;  // by rank
  RankClock::time_point begun = RankClock::now();
  std::vector<std::byte> bytes;  // kept for those that nobody waits for
  // These are guarded by the board's mutex.
  bool done = false;
  std::optional<RankClock::time_point> waited_since;
};

}  // namespace sotto
