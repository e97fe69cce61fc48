// Ranks that count what passes through them.
#pragma once

#include <chrono>
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

class CountedRanks final : public Ranks {
 public:
  explicit CountedRanks(std::shared_ptr<Ranks> ranks) : ranks_(std::move(ranks)) {}

  int rank() const override { return ranks_->rank(); }
  int size() const override { return ranks_->size(); }
  int ranks_on_host() const override { return ranks_->ranks_on_host(); }
  Pending exchange(std::string_view place, std::vector<Bytes> send,
                   std::vector<Room> receive) override {
    for (std::size_t k = 0; k < send.size(); ++k)
      count(place, k == 0, k == static_cast<std::size_t>(rank()) ? 0 : send[k].size());
    return timed(ranks_->exchange(place, std::move(send), std::move(receive)));
  }
  Pending gather(std::string_view place, Bytes send, std::vector<Room> receive) override {
    count(place, true, send.size() * others());
    return timed(ranks_->gather(place, send, std::move(receive)));
  }
  std::vector<std::byte> tell(std::string_view place, Bytes bytes) override {
    count(place, true, rank() == 0 ? bytes.size() * others() : 0);
    const Waiting waiting(waited_);
    return ranks_->tell(place, bytes);
  }
  std::vector<std::vector<std::byte>> collect(std::string_view place, Bytes bytes) override {
    count(place, true, rank() == 0 ? 0 : bytes.size());
    const Waiting waiting(waited_);
    return ranks_->collect(place, bytes);
  }
  void fail(std::string_view message) noexcept override { ranks_->fail(message); }

  // By place, since the last clear().
  const std::map<std::string, RankTraffic>& traffic() const { return traffic_; }
  // Seconds that this rank's thread waited, since the last clear().
  double waited() const { return waited_; }
  void clear() {
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
    Timed(Pending pending, double& to) : pending_(std::move(pending)), to_(to) {}
    void wait() override {
      const Waiting waiting(to_);
      pending_.wait();
    }

   private:
    Pending pending_;
    double& to_;
  };

  std::size_t others() const { return static_cast<std::size_t>(size()) - 1; }
  void count(std::string_view place, bool begins, std::size_t bytes) {
    RankTraffic& at = traffic_[std::string(place)];
    at.operations += begins;
    at.bytes += bytes;
  }
  Pending timed(Pending pending) {
    return Pending(std::make_unique<Timed>(std::move(pending), waited_));
  }

  std::shared_ptr<Ranks> ranks_;
  std::map<std::string, RankTraffic> traffic_;
  double waited_ = 0;
};

}  // namespace sotto
