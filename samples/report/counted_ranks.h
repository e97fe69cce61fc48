// Ranks that count what they move and how long they are waited for, for the report of a run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "core/ranks/ranks.h"

namespace sotto::samples {

class CountedRanks final : public Ranks {
 public:
  // All operations of one place in the program.
  struct Count {
    std::int64_t operations = 0;
    std::uint64_t bytes_sent = 0, bytes_received = 0;  // to and from other ranks
    double seconds_waited = 0;
  };

  explicit CountedRanks(std::shared_ptr<Ranks> ranks) : ranks_(std::move(ranks)) {}
  int rank() const override { return ranks_->rank(); }
  int size() const override { return ranks_->size(); }
  int ranks_on_host() const override { return ranks_->ranks_on_host(); }
  Pending exchange(std::string_view place, std::vector<Bytes> send,
                   std::vector<Room> receive) override;
  Pending all_gather(std::string_view place, Bytes send, std::vector<Room> receive) override;
  std::vector<std::byte> broadcast(std::string_view place, Bytes bytes) override;
  std::vector<std::byte> scatter(std::string_view place, const std::vector<Bytes>& send) override;
  std::vector<std::vector<std::byte>> gather(std::string_view place, Bytes bytes) override;
  void fail(std::string_view message) noexcept override { ranks_->fail(message); }
  void check_running() override { ranks_->check_running(); }
  GpuConnection& gpus() override { return ranks_->gpus(); }
  Pending sent_by_gpus(std::string_view place, std::uint64_t sent, std::uint64_t received,
                       Pending pending) override;

  const std::map<std::string, Count>& counts() const { return counts_; }
  // The sum over all places.
  Count total() const;

 private:
  class Wait;
  Count& count(std::string_view place);
  void add_blocks(Count& count, const std::vector<Room>& receive) const;

  std::shared_ptr<Ranks> ranks_;
  std::map<std::string, Count> counts_;  // their addresses stay
};

}  // namespace sotto::samples
