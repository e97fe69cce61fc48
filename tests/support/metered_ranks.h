// Ranks that count what passes through them.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/ranks/ranks.h"

namespace sotto {

// The operations at one place, as this rank made them.
struct RankTraffic {
  std::int64_t operations = 0;
  std::size_t bytes = 0;  // that this rank sent to others
};

// The beginning of an operation, or the end of a wait for it, as this rank's thread sees it.
struct RankEvent {
  std::int64_t operation = 0;  // from 0
  bool waits = false;          // the wait, and not the beginning
  bool from_rank_0 = false;    // only rank 0 is waited for
  bool sends = false;          // whether others may wait for this rank
  bool deals = false;          // rank 0 gives each rank bytes of its own
  std::size_t bytes = 0;       // that this rank sends
  bool resumes = false;        // what the thread computed since the event before does not count
  double computed = 0;         // seconds of this thread's processor time so far
};

class MeteredRanks final : public Ranks {
 public:
  explicit MeteredRanks(std::shared_ptr<Ranks> ranks) : ranks_(std::move(ranks)) {}

  int rank() const override { return ranks_->rank(); }
  int size() const override { return ranks_->size(); }
  int ranks_on_host() const override { return ranks_->ranks_on_host(); }
  Pending exchange(std::string_view place, std::vector<Bytes> send,
                   std::vector<Room> receive) override {
    std::size_t bytes = 0;
    for (std::size_t k = 0; k < send.size(); ++k)
      if (k != static_cast<std::size_t>(rank())) bytes += send[k].size();
    begin(place, bytes, true);
    return timed(ranks_->exchange(place, std::move(send), std::move(receive)));
  }
  Pending all_gather(std::string_view place, Bytes send, std::vector<Room> receive) override {
    begin(place, send.size() * others(), true);
    return timed(ranks_->all_gather(place, send, std::move(receive)));
  }
  std::vector<std::byte> broadcast(std::string_view place, Bytes bytes) override {
    return from_rank_0(place, bytes.size() * others(), false,
                       [&] { return ranks_->broadcast(place, bytes); });
  }
  std::vector<std::byte> scatter(std::string_view place, const std::vector<Bytes>& send) override {
    std::size_t bytes = 0;
    for (std::size_t k = 1; k < send.size(); ++k) bytes += send[k].size();
    return from_rank_0(place, bytes, true, [&] { return ranks_->scatter(place, send); });
  }
  std::vector<std::vector<std::byte>> gather(std::string_view place, Bytes bytes) override {
    const std::int64_t operation = begin(place, rank() == 0 ? 0 : bytes.size(), rank() != 0);
    const Waiting waiting(waited_);
    std::vector<std::vector<std::byte>> all = ranks_->gather(place, bytes);
    if (rank() == 0) waited_for(operation, false);
    return all;
  }
  void fail(std::string_view message) noexcept override { ranks_->fail(message); }
  void check_running() override { ranks_->check_running(); }

  // By place, since the last clear().
  const std::map<std::string, RankTraffic>& traffic() const { return traffic_; }
  // Seconds that this rank's thread waited, since the last clear().
  double waited() const { return waited_; }
  // In their order, from the last clear() to end(), of which both are events.
  const std::vector<RankEvent>& events() const { return events_; }
  void end() { waited_for(-1, false); }
  // Says that what the thread computed since the last event belongs to something else.
  void resume() { events_.push_back({.operation = -1, .resumes = true, .computed = computed()}); }
  void clear() {
    operations_ = 0;
    events_.clear();
    resume();
    traffic_.clear();
    waited_ = 0;
  }

 private:
  // Adds the time for which it lives.
  class Waiting {
   public:
    explicit Waiting(double& to) : to_(to) {}
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    ~Waiting() {
      to_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    }

   private:
    double& to_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  };
  class Timed final : public Pending::Work {
   public:
    Timed(Pending pending, std::int64_t operation, MeteredRanks& ranks)
        : pending_(std::move(pending)), operation_(operation), ranks_(ranks) {}
    void wait() override {
      {
        const Waiting waiting(ranks_.waited_);
        pending_.wait();
      }
      ranks_.waited_for(operation_, false);
    }

   private:
    Pending pending_;
    std::int64_t operation_;
    MeteredRanks& ranks_;
  };

  std::size_t others() const { return static_cast<std::size_t>(size()) - 1; }
  static double computed() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }
  // An operation in which rank 0 sends so many bytes.
  template <class Receive>
  std::vector<std::byte> from_rank_0(std::string_view place, std::size_t bytes, bool deals,
                                     const Receive& receive) {
    const bool sends = rank() == 0;
    const std::int64_t operation = begin(place, sends ? bytes : 0, sends);
    events_.back().deals = deals;
    const Waiting waiting(waited_);
    std::vector<std::byte> received = receive();
    if (!sends) waited_for(operation, true);
    return received;
  }
  std::int64_t begin(std::string_view place, std::size_t bytes, bool sends) {
    RankTraffic& at = traffic_[std::string(place)];
    ++at.operations;
    at.bytes += bytes;
    events_.push_back(
        {.operation = operations_, .sends = sends, .bytes = bytes, .computed = computed()});
    return operations_++;
  }
  void waited_for(std::int64_t operation, bool from_rank_0) {
    events_.push_back({.operation = operation,
                       .waits = operation >= 0,
                       .from_rank_0 = from_rank_0,
                       .computed = computed()});
  }
  Pending timed(Pending pending) {
    return Pending(std::make_unique<Timed>(std::move(pending), operations_ - 1, *this));
  }

  std::shared_ptr<Ranks> ranks_;
  std::map<std::string, RankTraffic> traffic_;
  std::vector<RankEvent> events_;
  std::int64_t operations_ = 0;
  double waited_ = 0;
};

}  // namespace sotto
