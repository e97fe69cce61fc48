#include "core/ranks/message_ranks.h"

#include <algorithm>
#include <utility>

#include <unistd.h>

#include "core/ranks/blocks.h"
#include "core/ranks/communication.h"

namespace sotto {

namespace {

using std::chrono::milliseconds;

// The time that a rank has to end by itself after a failure.
constexpr auto grace = std::chrono::seconds(1);

// True if the ranks of the host are more than its processors: what a rank waits for then needs the
// processor that looking for it takes.
bool crowded(const Link& link) { return link.ranks_on_host() > ::sysconf(_SC_NPROCESSORS_ONLN); }

}  // namespace

// Waits for an operation that has begun.
class MessageRanks::Wait final : public Pending::Work {
 public:
  Wait(MessageRanks& ranks, std::shared_ptr<Operation> operation)
      : ranks_(ranks), operation_(std::move(operation)) {}
  void wait() override { ranks_.wait(*operation_); }

 private:
  MessageRanks& ranks_;
  std::shared_ptr<Operation> operation_;
};

MessageRanks::MessageRanks(MakeLink make, const RankLimits& limits) {
  thread_ = std::thread([this, make = std::move(make), limits] { communicate(make, limits); });
  std::unique_lock lock(board_.mutex);
  board_.moved.wait(lock, [&] { return ready_ || not_made_; });
  lock.unlock();
  if (!not_made_) return;
  thread_.join();
  std::rethrow_exception(not_made_);
}

MessageRanks::~MessageRanks() {
  if (std::uncaught_exceptions() > exceptions_) fail("was ended by an exception");
  {
    const std::lock_guard lock(board_.mutex);
    board_.closing = true;
    board_.changed.notify_all();
  }
  thread_.join();
}

Pending MessageRanks::exchange(std::string_view place, std::vector<Bytes> send,
                               std::vector<Room> receive) {
  return move_blocks(NoticeKind::exchange, place, std::move(send), std::move(receive));
}

Pending MessageRanks::all_gather(std::string_view place, Bytes send, std::vector<Room> receive) {
  return move_blocks(NoticeKind::all_gather, place,
                     std::vector<Bytes>(static_cast<std::size_t>(size_), send), std::move(receive));
}

Pending MessageRanks::move_blocks(NoticeKind kind, std::string_view place, std::vector<Bytes> send,
                                  std::vector<Room> receive) {
  check_block_count(place, send.size(), size_);
  check_block_count(place, receive.size(), size_);
  const auto own = static_cast<std::size_t>(rank_);
  copy_own_block(place, send[own], receive[own]);
  const auto operation = std::make_shared<Operation>(kind, place, size_);
  for (std::size_t k = 0; k < send.size(); ++k) {
    if (k == own) continue;
    Operation::Part& part = operation->parts[k];
    part.sends = part.expects = true;
    part.out = send[k];
    part.room = receive[k];
  }
  begin(operation);
  return Pending(std::make_unique<Wait>(*this, operation));
}

std::vector<std::byte> MessageRanks::broadcast(std::string_view place, Bytes bytes) {
  const auto operation = std::make_shared<Operation>(NoticeKind::broadcast, place, size_);
  if (rank_ != 0) return from_rank_0(operation);
  operation->bytes.assign(bytes.begin(), bytes.end());
  hand_out(operation, std::vector<Bytes>(static_cast<std::size_t>(size_), operation->bytes));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> MessageRanks::scatter(std::string_view place,
                                             const std::vector<Bytes>& send) {
  const auto operation = std::make_shared<Operation>(NoticeKind::scatter, place, size_);
  if (rank_ != 0) return from_rank_0(operation);
  check_block_count(place, send.size(), size_);
  for (const Bytes block : send)
    operation->bytes.insert(operation->bytes.end(), block.begin(), block.end());
  std::vector<Bytes> kept;
  Bytes rest = operation->bytes;
  for (const Bytes block : send) {
    kept.push_back(rest.first(block.size()));
    rest = rest.subspan(block.size());
  }
  hand_out(operation, kept);
  return {send[0].begin(), send[0].end()};
}

// Rank 0's part of an operation that gives send[k], which the operation keeps, to rank k. The
// others notify it, but it does not wait for them.
void MessageRanks::hand_out(const std::shared_ptr<Operation>& operation,
                            const std::vector<Bytes>& send) {
  for (std::size_t k = 1; k < send.size(); ++k) {
    Operation::Part& part = operation->parts[k];
    part.sends = part.expects = true;
    part.out = send[k];
  }
  begin(operation);
}

// The others' part.
std::vector<std::byte> MessageRanks::from_rank_0(const std::shared_ptr<Operation>& operation) {
  Operation::Part& part = operation->parts[0];
  part.sends = part.expects = part.any_size = true;
  begin(operation);
  wait(*operation);
  return std::move(part.grown);
}

// Rank 0 waits for the others, which go on at once.
std::vector<std::vector<std::byte>> MessageRanks::gather(std::string_view place, Bytes bytes) {
  const auto operation = std::make_shared<Operation>(NoticeKind::gather, place, size_);
  if (rank_ != 0) {
    operation->bytes.assign(bytes.begin(), bytes.end());
    operation->parts[0].sends = true;
    operation->parts[0].out = operation->bytes;
    begin(operation);
    return {};
  }
  for (int k = 1; k < size_; ++k) {
    Operation::Part& part = operation->parts[static_cast<std::size_t>(k)];
    part.expects = part.any_size = true;
  }
  begin(operation);
  wait(*operation);
  std::vector<std::vector<std::byte>> all{{bytes.begin(), bytes.end()}};
  for (int k = 1; k < size_; ++k)
    all.push_back(std::move(operation->parts[static_cast<std::size_t>(k)].grown));
  return all;
}

void MessageRanks::fail(std::string_view message) noexcept {
  std::unique_lock lock(board_.mutex);
  if (!board_.cause) board_.cause = message;
  board_.changed.notify_all();
  board_.moved.wait(lock, [&] { return board_.failure != nullptr; });
}

void MessageRanks::check_running() {
  const std::lock_guard lock(board_.mutex);
  if (board_.failure) throw RankFailure(*board_.failure);
}

void MessageRanks::begin(const std::shared_ptr<Operation>& operation) {
  const std::lock_guard lock(board_.mutex);
  if (board_.failure) throw RankFailure(*board_.failure);
  operation->number = ++operations_;
  board_.begun.push_back(operation);
  board_.doing.last = operation->text();
  board_.changed.notify_all();
}

void MessageRanks::wait(Operation& operation) {
  std::unique_lock lock(board_.mutex);
  if (!operation.done && !board_.failure) {
    operation.waited_since = board_.doing.since = RankClock::now();
    board_.doing.waits_in = operation.text();
    board_.moved.wait(lock, [&] { return operation.done || board_.failure; });
    board_.doing.waits_in.clear();
  }
  board_.doing.since = RankClock::now();
  if (!operation.done) throw RankFailure(*board_.failure);
}

void MessageRanks::communicate(const MakeLink& make, const RankLimits& limits) {
  std::unique_ptr<Link> link;
  try {
    link = make();
    const std::lock_guard lock(board_.mutex);
    rank_ = link->rank();
    size_ = link->size();
    ranks_on_host_ = link->ranks_on_host();
    ready_ = true;
    board_.moved.notify_all();
  } catch (...) {
    const std::lock_guard lock(board_.mutex);
    not_made_ = std::current_exception();
    board_.moved.notify_all();
    return;
  }
  Communication communication(*link, board_, limits);
  const bool on_crowded_host = crowded(*link);
  auto last_move = RankClock::now();
  while (!communication.ended()) {
    const bool moved = communication.step();
    const auto now = RankClock::now();
    if (moved) last_move = now;
    const auto pause = next_look(now - last_move, communication.activity(), on_crowded_host);
    std::unique_lock lock(board_.mutex);
    const bool asked = !board_.begun.empty() || (board_.cause && !communication.ended());
    if (moved || asked || communication.ended()) continue;
    if (pause == RankClock::duration::zero()) {
      lock.unlock();
      std::this_thread::yield();
    } else {
      board_.changed.wait_for(
          lock, board_.closing ? std::min<RankClock::duration>(pause, milliseconds(1)) : pause);
    }
  }
  std::unique_lock lock(board_.mutex);
  if (!board_.failure) return;
  board_.changed.wait_for(lock, grace, [&] { return board_.closing; });
  lock.unlock();
  link->abandon();
}

}  // namespace sotto
