// Ranks that send each other messages over a link.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <thread>

#include "core/ranks/board.h"
#include "core/ranks/link.h"
#include "core/ranks/rank_limits.h"
#include "core/ranks/ranks.h"

namespace sotto {

// Every operation begins with a notice of its number, kind and place to each rank that takes part;
// the bytes follow when both are there. Destroyed by an exception, it fails the run.
class MessageRanks final : public Ranks {
 public:
  using MakeLink = std::function<std::unique_ptr<Link>()>;
  // The communication thread makes the link; what that throws is thrown here.
  explicit MessageRanks(MakeLink make, const RankLimits& limits = {});
  ~MessageRanks() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int ranks_on_host() const override { return ranks_on_host_; }
  Pending exchange(std::string_view place, std::vector<Bytes> send,
                   std::vector<Room> receive) override;
  Pending all_gather(std::string_view place, Bytes send, std::vector<Room> receive) override;
  std::vector<std::byte> broadcast(std::string_view place, Bytes bytes) override;
  std::vector<std::byte> scatter(std::string_view place, const std::vector<Bytes>& send) override;
  std::vector<std::vector<std::byte>> gather(std::string_view place, Bytes bytes) override;
  void fail(std::string_view message) noexcept override;
  void check_running() override;

 private:
  class Wait;
  Pending move_blocks(NoticeKind kind, std::string_view place, std::vector<Bytes> send,
                      std::vector<Room> receive);
  void hand_out(const std::shared_ptr<Operation>& operation, const std::vector<Bytes>& send);
  std::vector<std::byte> from_rank_0(const std::shared_ptr<Operation>& operation);
  void begin(const std::shared_ptr<Operation>& operation);
  void wait(Operation& operation);
  void communicate(const MakeLink& make, const RankLimits& limits);

  Board board_;
  int rank_ = 0, size_ = 0, ranks_on_host_ = 0;
  bool ready_ = false;           // connecting succeeded
  std::exception_ptr not_made_;  // why it failed
  std::uint64_t operations_ = 0;
  int exceptions_ = std::uncaught_exceptions();
  std::thread thread_;
};

}  // namespace sotto
