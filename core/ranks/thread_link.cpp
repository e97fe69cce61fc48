#include "core/ranks/thread_link.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>

#include "core/ranks/host_name.h"
#include "core/ranks/operation.h"

namespace sotto {

namespace {

using Time = RankClock::time_point;

// Bytes that one rank offers to another.
struct Offer {
  Ranks::Bytes bytes;
  Time due;
  bool taken = false;
};

// The messages from one rank to another.
struct Lane {
  struct Letter {
    std::vector<std::byte> bytes;
    Time due;
  };
  std::mutex mutex;
  std::deque<Letter> letters;
  std::deque<std::shared_ptr<Offer>> offers;
  std::uint64_t receives = 0, received = 0;
};

}  // namespace

class ThreadHub {
 public:
  ThreadHub(int size, const ThreadRanksOptions& options)
      : size(size),
        options(options),
        lanes_(static_cast<std::size_t>(size) * static_cast<std::size_t>(size)) {}
  Lane& lane(int from, int to) {
    return lanes_[static_cast<std::size_t>(from) * static_cast<std::size_t>(size) +
                  static_cast<std::size_t>(to)];
  }

  const int size;
  const ThreadRanksOptions options;

 private:
  std::vector<Lane> lanes_;
};

namespace {

class ThreadSend final : public Link::Transfer {
 public:
  ThreadSend(std::shared_ptr<ThreadHub> hub, Lane& lane, Ranks::Bytes bytes, Time due)
      : hub_(std::move(hub)), lane_(lane), offer_(std::make_shared<Offer>(Offer{bytes, due})) {
    const std::lock_guard lock(lane_.mutex);
    lane_.offers.push_back(offer_);
  }
  ~ThreadSend() override {
    const std::lock_guard lock(lane_.mutex);
    std::erase(lane_.offers, offer_);
  }
  bool done() override {
    const std::lock_guard lock(lane_.mutex);
    return offer_->taken;
  }

 private:
  std::shared_ptr<ThreadHub> hub_;
  Lane& lane_;
  std::shared_ptr<Offer> offer_;
};

// Copies the offer when it is due.
class ThreadReceive final : public Link::Transfer {
 public:
  ThreadReceive(std::shared_ptr<ThreadHub> hub, Lane& lane, Ranks::Room room)
      : hub_(std::move(hub)), lane_(lane), room_(room) {
    const std::lock_guard lock(lane_.mutex);
    turn_ = lane_.receives++;
  }
  bool done() override {
    const std::lock_guard lock(lane_.mutex);
    if (lane_.received != turn_ || lane_.offers.empty()) return lane_.received > turn_;
    Offer& offer = *lane_.offers.front();
    if (RankClock::now() < offer.due) return false;
    std::memcpy(room_.data(), offer.bytes.data(), room_.size());
    offer.taken = true;
    lane_.offers.pop_front();
    ++lane_.received;
    return true;
  }

 private:
  std::shared_ptr<ThreadHub> hub_;
  Lane& lane_;
  Ranks::Room room_;
  std::uint64_t turn_;
};

class ThreadLink final : public Link {
 public:
  ThreadLink(std::shared_ptr<ThreadHub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return hub_->size; }
  int ranks_on_host() const override { return hub_->size; }
  std::string host(int) const override { return host_name(); }

  void notify(int to, Ranks::Bytes notice) override {
    const NoticeHead head = read_notice(notice).head;
    const bool operation = head.kind <= NoticeKind::gather;
    silent_ |=
        operation && rank_ == hub_->options.silent_rank && head.number >= hub_->options.silent_from;
    if (silent_) return;
    Lane& lane = hub_->lane(rank_, to);
    const Time due = arrival(notice.size());
    const std::lock_guard lock(lane.mutex);
    lane.letters.push_back({{notice.begin(), notice.end()}, due});
  }
  bool poll(Notice& notice) override {
    for (int from = 0; from < hub_->size; ++from) {
      Lane& lane = hub_->lane(from, rank_);
      const std::lock_guard lock(lane.mutex);
      if (lane.letters.empty() || RankClock::now() < lane.letters.front().due) continue;
      notice = {from, std::move(lane.letters.front().bytes)};
      lane.letters.pop_front();
      return true;
    }
    return false;
  }
  bool notices_sent() override { return true; }
  std::unique_ptr<Transfer> send(int to, Ranks::Bytes bytes) override {
    return std::make_unique<ThreadSend>(hub_, hub_->lane(rank_, to), bytes, arrival(bytes.size()));
  }
  std::unique_ptr<Transfer> receive(int from, Ranks::Room room) override {
    return std::make_unique<ThreadReceive>(hub_, hub_->lane(from, rank_), room);
  }
  // A thread may destroy all ranks, one after the other.
  bool ends_together() const override { return false; }
  void failed(const RankFailure&, bool) override {}
  void abandon() override {}

 private:
  // The time at which bytes that are sent now arrive.
  Time arrival(std::size_t bytes) {
    const auto seconds = [](double x) {
      return std::chrono::duration_cast<RankClock::duration>(std::chrono::duration<double>(x));
    };
    const ThreadRanksOptions& options = hub_->options;
    free_ = std::max(free_, RankClock::now());
    if (options.bytes_per_second > 0)
      free_ += seconds(static_cast<double>(bytes) / options.bytes_per_second);
    const bool own = !options.rank_latency_seconds.empty();
    return free_ +
           seconds(options.latency_seconds +
                   (own ? options.rank_latency_seconds[static_cast<std::size_t>(rank_)] : 0));
  }

  std::shared_ptr<ThreadHub> hub_;
  int rank_;
  bool silent_ = false;
  Time free_{};  // when what was sent before has left
};

}  // namespace

std::shared_ptr<ThreadHub> make_thread_hub(int size, const ThreadRanksOptions& options) {
  return std::make_shared<ThreadHub>(size, options);
}

std::unique_ptr<Link> make_thread_link(std::shared_ptr<ThreadHub> hub, int rank) {
  return std::make_unique<ThreadLink>(std::move(hub), rank);
}

}  // namespace sotto
