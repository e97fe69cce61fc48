// The work of a rank's communication thread: it starts operations, matches what other ranks send
// with them, and watches over the other ranks.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "core/ranks/board.h"
#include "core/ranks/link.h"
#include "core/ranks/operation.h"
#include "core/ranks/rank_limits.h"

namespace sotto {

class Communication {
 public:
  Communication(Link& link, Board& board, const RankLimits& limits);
  // Does what can be done now; returns true if anything moved. An exception is this rank's failure.
  bool step();
  // True when the rank has closed and nothing is left to do, and after a failure.
  bool ended() const { return ended_; }
  // The state that decides how soon to look again.
  enum class Activity { idle, waiting, arriving };
  Activity activity() const;

 private:
  struct Peer {
    std::deque<ReadNotice> early;  // notices of operations that this rank has not begun
    std::deque<std::shared_ptr<Operation>> expected;
    RankClock::time_point heard = RankClock::now();
    std::string doing = "not heard from yet";
    bool ended = false;
    RankClock::time_point ended_at{};
  };

  bool try_step();
  bool start(std::vector<std::shared_ptr<Operation>> begun);
  void receive(const Link::Notice& notice);
  void match(int rank);
  // Notes that the rank has begun the operation, and receives its bytes.
  void arrive(Operation& operation, int rank, const ReadNotice& notice);
  bool advance();
  void beat(RankClock::time_point now);
  void watch(RankClock::time_point now);
  void watch_operations(RankClock::time_point now);
  // Fails operations that wait for a rank that has ended.
  void watch_ended(RankClock::time_point now);
  void close();
  void fail_apart(int rank, const std::string& theirs, const std::string& ours);
  // by_itself: the rank reported the failure; it was not detected by a timeout.
  void fail(int rank, const std::string& cause, bool by_itself = false);
  void tell_failure(const RankFailure& failure, bool by_itself);
  std::vector<RankFailure::Known> known_ranks();
  void notify_others(const NoticeHead& head, std::string_view text);

  Link& link_;
  Board& board_;
  RankLimits limits_;
  std::vector<Peer> peers_;
  std::vector<std::shared_ptr<Operation>> operations_;  // under way
  RankClock::time_point next_beat_{}, watched_ = RankClock::now();
  bool said_end_ = false;
  bool ended_ = false;
};

// The time until the communication thread looks again, after `quiet` without any movement. It
// grows with that time, so that looking late costs a small part of a wait, and idling little;
// faster on a crowded host, which has more ranks than processors.
RankClock::duration next_look(RankClock::duration quiet, Communication::Activity activity,
                              bool crowded);

}  // namespace sotto
