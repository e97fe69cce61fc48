// A run of one rank: what it sends, it receives.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/ranks/ranks.h"

namespace sotto {

// Ranks for one process; EngineOptions::ranks of a run that is one by intention.
class OneRank final : public Ranks {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  int ranks_on_host() const override { return 1; }
  Pending exchange(std::string_view place, std::vector<Bytes> send,
                   std::vector<Room> receive) override;
  Pending all_gather(std::string_view place, Bytes send, std::vector<Room> receive) override;
  std::vector<std::byte> broadcast(std::string_view place, Bytes bytes) override;
  std::vector<std::byte> scatter(std::string_view place, const std::vector<Bytes>& send) override;
  std::vector<std::vector<std::byte>> gather(std::string_view place, Bytes bytes) override;
  void fail(std::string_view message) noexcept override;
  void check_running() override;

 private:
  std::optional<std::string> failure_;
};

// Returns `ranks`, or a OneRank for null.
std::shared_ptr<Ranks> ranks_or_one(std::shared_ptr<Ranks> ranks);

}  // namespace sotto
