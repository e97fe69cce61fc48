#include "samples/report/counted_ranks.h"

#include <chrono>
#include <utility>

namespace sotto::samples {

namespace {

// Calls f and adds the time that it takes.
template <class F>
auto timed(double& seconds, const F& f) {
  const auto start = std::chrono::steady_clock::now();
  struct Stop {
    double& to;
    std::chrono::steady_clock::time_point start;
    ~Stop() {
      to += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
  } const stop{seconds, start};
  return f();
}

}  // namespace

// Counts the time of wait(); a destroyed one has been waited for, too.
class CountedRanks::Wait final : public Pending::Work {
 public:
  Wait(Pending pending, Count& count) : pending_(std::move(pending)), count_(count) {}
  void wait() override {
    timed(count_.seconds_waited, [this] { pending_.wait(); });
  }

 private:
  Pending pending_;
  Count& count_;
};

CountedRanks::Count& CountedRanks::count(std::string_view place) {
  Count& count = counts_[std::string(place)];
  ++count.operations;
  return count;
}

void CountedRanks::add_blocks(Count& count, const std::vector<Room>& receive) const {
  for (std::size_t k = 0; k < receive.size(); ++k)
    if (k != static_cast<std::size_t>(rank())) count.bytes_received += receive[k].size();
}

Pending CountedRanks::exchange(std::string_view place, std::vector<Bytes> send,
                               std::vector<Room> receive) {
  Count& here = count(place);
  add_blocks(here, receive);
  for (std::size_t k = 0; k < send.size(); ++k)
    if (k != static_cast<std::size_t>(rank())) here.bytes_sent += send[k].size();
  return Pending(
      std::make_unique<Wait>(ranks_->exchange(place, std::move(send), std::move(receive)), here));
}

Pending CountedRanks::sent_by_gpus(std::string_view place, std::uint64_t sent,
                                   std::uint64_t received, Pending pending) {
  Count& here = count(place);
  here.bytes_sent += sent;
  here.bytes_received += received;
  return Pending(std::make_unique<Wait>(std::move(pending), here));
}

Pending CountedRanks::all_gather(std::string_view place, Bytes send, std::vector<Room> receive) {
  Count& here = count(place);
  add_blocks(here, receive);
  here.bytes_sent += send.size() * static_cast<std::size_t>(size() - 1);
  return Pending(std::make_unique<Wait>(ranks_->all_gather(place, send, std::move(receive)), here));
}

std::vector<std::byte> CountedRanks::broadcast(std::string_view place, Bytes bytes) {
  Count& here = count(place);
  auto told = timed(here.seconds_waited, [&] { return ranks_->broadcast(place, bytes); });
  if (rank() == 0) {
    here.bytes_sent += bytes.size() * static_cast<std::size_t>(size() - 1);
  } else {
    here.bytes_received += told.size();
  }
  return told;
}

std::vector<std::byte> CountedRanks::scatter(std::string_view place,
                                             const std::vector<Bytes>& send) {
  Count& here = count(place);
  auto dealt = timed(here.seconds_waited, [&] { return ranks_->scatter(place, send); });
  if (rank() != 0) here.bytes_received += dealt.size();
  for (std::size_t k = 1; rank() == 0 && k < send.size(); ++k) here.bytes_sent += send[k].size();
  return dealt;
}

std::vector<std::vector<std::byte>> CountedRanks::gather(std::string_view place, Bytes bytes) {
  Count& here = count(place);
  auto all = timed(here.seconds_waited, [&] { return ranks_->gather(place, bytes); });
  for (std::size_t k = 1; k < all.size(); ++k) here.bytes_received += all[k].size();
  if (rank() != 0) here.bytes_sent += bytes.size();
  return all;
}

CountedRanks::Count CountedRanks::total() const {
  Count sum;
  for (const auto& [place, count] : counts_) {
    sum.operations += count.operations;
    sum.bytes_sent += count.bytes_sent;
    sum.bytes_received += count.bytes_received;
    sum.seconds_waited += count.seconds_waited;
  }
  return sum;
}

}  // namespace sotto::samples
