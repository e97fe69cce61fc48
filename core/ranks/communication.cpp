#include "core/ranks/communication.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace sotto {

namespace {

using std::chrono::duration;

// A rank that stays silent for this many heartbeats has failed.
constexpr double beats_in_silence = 5;
// The time that notices of a failure get to leave.
constexpr auto farewell = std::chrono::milliseconds(200);

RankClock::duration seconds(double x) {
  return std::chrono::duration_cast<RankClock::duration>(duration<double>(x));
}

std::string text_of(const ReadNotice& notice) {
  return fmt::format("operation {}, {} \"{}\"", notice.head.number, name(notice.head.kind),
                     notice.text);
}

}  // namespace

RankClock::duration next_look(RankClock::duration quiet, Communication::Activity activity,
                              bool crowded) {
  using Activity = Communication::Activity;
  using std::chrono::microseconds, std::chrono::milliseconds;
  if (activity == Activity::idle) return milliseconds(100);  // a failure elsewhere can be so late
  constexpr auto spin = microseconds(50), most = microseconds(1000);
  const bool arriving = activity == Activity::arriving;
  if (crowded)
    return std::clamp<RankClock::duration>(quiet / 4, microseconds(100),
                                           arriving ? 4 * spin : most);
  if (quiet < spin) return {};
  return std::clamp<RankClock::duration>(quiet / 16, microseconds(20), arriving ? spin : most);
}

std::string Board::doing_text() const {
  const double passed = duration<double>(RankClock::now() - doing.since).count();
  if (!doing.waits_in.empty())
    return fmt::format("waits in {} for {:.1f} s", doing.waits_in, passed);
  return fmt::format("computes for {:.1f} s, after {}", passed, doing.last);
}

Communication::Communication(Link& link, Board& board, const RankLimits& limits)
    : link_(link), board_(board), limits_(limits), peers_(static_cast<std::size_t>(link.size())) {}

bool Communication::step() {
  try {
    return try_step();
  } catch (const std::exception& exception) {
    fail(link_.rank(), exception.what(), true);
    return false;
  }
}

bool Communication::try_step() {
  std::vector<std::shared_ptr<Operation>> begun;
  std::optional<std::string> cause;
  bool closing = false;
  {
    const std::lock_guard lock(board_.mutex);
    begun.swap(board_.begun);
    cause = board_.cause;
    closing = board_.closing;
  }
  if (cause) fail(link_.rank(), *cause, true);
  if (ended_) return false;
  bool moved = start(std::move(begun));
  for (Link::Notice notice; !ended_ && link_.poll(notice); moved = true) receive(notice);
  if (ended_) return false;
  moved |= advance();
  const auto now = RankClock::now();
  beat(now);
  watch(now);
  if (closing && !ended_) close();
  return moved;
}

Communication::Activity Communication::activity() const {
  if (operations_.empty()) return Activity::idle;
  for (const auto& operation : operations_) {
    for (const Operation::Part& part : operation->parts)
      if (part.arrived && (part.sending || part.receiving)) return Activity::arriving;
  }
  return Activity::waiting;
}

bool Communication::start(std::vector<std::shared_ptr<Operation>> begun) {
  for (const auto& operation : begun) {
    operations_.push_back(operation);
    NoticeHead head{
        .number = operation->number, .digest = operation->digest, .kind = operation->kind};
    // Ranks begin with their neighbour, so that not all send to one at once.
    for (int shift = 1; shift < link_.size(); ++shift) {
      const int to = (link_.rank() + shift) % link_.size();
      Operation::Part& part = operation->parts[static_cast<std::size_t>(to)];
      if (part.sends) {
        head.bytes = part.out.size();
        link_.notify(to, write_notice(head, operation->place));
        if (!part.out.empty()) part.sending = link_.send(to, part.out);
      }
      if (part.expects) peers_[static_cast<std::size_t>(to)].expected.push_back(operation);
    }
    for (int k = 0; k < link_.size() && !ended_; ++k) match(k);
    if (ended_) break;
  }
  return !begun.empty();
}

void Communication::receive(const Link::Notice& notice) {
  const int from = notice.from;
  Peer& peer = peers_[static_cast<std::size_t>(from)];
  peer.heard = RankClock::now();
  ReadNotice read = read_notice(notice.bytes);
  switch (read.head.kind) {
    case NoticeKind::heartbeat: peer.doing = std::move(read.text); break;
    case NoticeKind::failure:
      fail(static_cast<int>(read.head.number), read.text, read.head.by_itself != 0);
      break;
    case NoticeKind::end:
      peer.ended = true;
      peer.ended_at = peer.heard;
      peer.doing = "has ended its run";
      match(from);
      break;
    default:
      peer.doing = "is at " + text_of(read);
      peer.early.push_back(std::move(read));
      match(from);
  }
}

void Communication::match(int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  while (!ended_ && !peer.early.empty() && !peer.expected.empty()) {
    const auto operation = std::exchange(peer.expected.front(), nullptr);
    const ReadNotice notice = std::move(peer.early.front());
    peer.expected.pop_front();
    peer.early.pop_front();
    const NoticeHead& head = notice.head;
    if (head.number != operation->number || head.kind != operation->kind ||
        head.digest != operation->digest) {
      fail_apart(rank, text_of(notice), operation->text());
    } else {
      arrive(*operation, rank, notice);
    }
  }
  if (!ended_ && peer.ended && !peer.expected.empty())
    fail(rank, fmt::format("has ended its run, where rank {} is at {}", link_.rank(),
                           peer.expected.front()->text()));
}

// Both ranks blame the higher-numbered one, so that their messages agree.
void Communication::fail_apart(int rank, const std::string& theirs, const std::string& ours) {
  const int own = link_.rank();
  const bool later = rank > own;
  fail(std::max(rank, own), fmt::format("is at {}, where rank {} is at {}", later ? theirs : ours,
                                        std::min(rank, own), later ? ours : theirs));
}

void Communication::arrive(Operation& operation, int rank, const ReadNotice& notice) {
  Operation::Part& part = operation.parts[static_cast<std::size_t>(rank)];
  part.arrived = true;
  if (part.any_size) {
    part.grown.resize(notice.head.bytes);
    part.room = part.grown;
  }
  if (notice.head.bytes != part.room.size()) {
    fail(rank, fmt::format("sends {} bytes at {}, where rank {} takes {}", notice.head.bytes,
                           operation.text(), link_.rank(), part.room.size()));
  } else if (!part.room.empty()) {
    part.receiving = link_.receive(rank, part.room);
  }
}

bool Communication::advance() {
  bool moved = false;
  std::vector<std::shared_ptr<Operation>> done;
  for (const auto& operation : operations_) {
    for (Operation::Part& part : operation->parts) {
      for (auto* transfer : {&part.sending, &part.receiving}) {
        if (*transfer && (*transfer)->done()) {
          transfer->reset();
          moved = true;
        }
      }
    }
    if (std::all_of(operation->parts.begin(), operation->parts.end(),
                    [](const Operation::Part& part) { return part.done(); }))
      done.push_back(operation);
  }
  if (done.empty()) return moved;
  const std::lock_guard lock(board_.mutex);
  for (const auto& operation : done) {
    operation->done = true;
    std::erase(operations_, operation);
  }
  board_.moved.notify_all();
  return true;
}

void Communication::beat(RankClock::time_point now) {
  if (now < next_beat_) return;
  next_beat_ = now + seconds(limits_.silence_seconds / beats_in_silence);
  std::string doing;
  {
    const std::lock_guard lock(board_.mutex);
    doing = board_.doing_text();
  }
  notify_others({.kind = NoticeKind::heartbeat}, doing);
}

void Communication::watch(RankClock::time_point now) {
  const bool paused =
      now - std::exchange(watched_, now) > seconds(limits_.silence_seconds / beats_in_silence);
  for (int k = 0; k < link_.size() && !ended_; ++k) {
    Peer& peer = peers_[static_cast<std::size_t>(k)];
    // After a pause of this rank itself, as by SIGSTOP, nobody else is taken for silent.
    if (paused) peer.heard = peer.ended_at = now;
    if (k == link_.rank() || (peer.ended && !link_.ends_together())) continue;
    if (now - peer.heard > seconds(limits_.silence_seconds))
      fail(k, fmt::format("was not heard from for {:.1f} s: dead, stopped or unreachable",
                          duration<double>(now - peer.heard).count()));
  }
  watch_operations(now);
  watch_ended(now);
}

// A transfer may complete after the peer's end notice.
void Communication::watch_ended(RankClock::time_point now) {
  for (int k = 0; k < link_.size() && !ended_; ++k) {
    const Peer& peer = peers_[static_cast<std::size_t>(k)];
    const auto never_done = [&](const auto& operation) {
      return !operation->parts[static_cast<std::size_t>(k)].done() &&
             now - std::max(peer.ended_at, operation->begun) > seconds(limits_.silence_seconds);
    };
    const auto found = std::ranges::find_if(operations_, never_done);
    if (peer.ended && found != operations_.end())
      fail(k, fmt::format("has ended its run, where rank {} is at {}", link_.rank(),
                          (*found)->text()));
  }
}

void Communication::watch_operations(RankClock::time_point now) {
  for (std::size_t i = 0; i < operations_.size() && !ended_; ++i) {
    const auto operation = operations_[i];
    std::optional<RankClock::time_point> since;
    {
      const std::lock_guard lock(board_.mutex);
      since = operation->waited_since;
    }
    if (!since || now - *since <= seconds(limits_.operation_seconds)) continue;
    const auto late = std::find_if(operation->parts.begin(), operation->parts.end(),
                                   [](const Operation::Part& part) { return !part.done(); });
    fail(static_cast<int>(late - operation->parts.begin()),
         fmt::format("rank {} has waited for it in {} for {:.1f} s", link_.rank(),
                     operation->text(), duration<double>(now - *since).count()));
  }
}

// Others may still have bytes to take from this rank.
void Communication::close() {
  for (int k = 0; k < link_.size() && !ended_; ++k) {
    const Peer& peer = peers_[static_cast<std::size_t>(k)];
    if (!peer.early.empty() && peer.expected.empty())
      fail(link_.rank(),
           fmt::format("has ended its run, where rank {} is at {}", k, text_of(peer.early.front())),
           true);
  }
  if (ended_) return;
  if (!operations_.empty()) return;
  if (!std::exchange(said_end_, true)) notify_others({.kind = NoticeKind::end}, "");
  int left = 0;
  for (int k = 0; k < link_.size(); ++k)
    left += k != link_.rank() && !peers_[static_cast<std::size_t>(k)].ended;
  ended_ = link_.notices_sent() && (left == 0 || !link_.ends_together());
}

void Communication::fail(int rank, const std::string& cause, bool by_itself) {
  if (std::exchange(ended_, true)) return;
  const auto failure = std::make_shared<const RankFailure>(rank, cause, known_ranks());
  tell_failure(*failure, by_itself);
  // Whoever waits may free its buffers when it knows: nothing uses them from here on.
  const std::lock_guard lock(board_.mutex);
  for (auto* operations : {&operations_, &board_.begun}) {
    for (const auto& operation : *operations) {
      for (Operation::Part& part : operation->parts) {
        part.sending = nullptr;
        part.receiving = nullptr;
      }
    }
    operations->clear();
  }
  board_.failure = failure;
  board_.moved.notify_all();
}

void Communication::tell_failure(const RankFailure& failure, bool by_itself) {
  try {
    const auto rank = static_cast<std::uint64_t>(failure.rank());
    notify_others({.number = rank, .kind = NoticeKind::failure, .by_itself = by_itself},
                  failure.cause());
    const auto end = RankClock::now() + farewell;
    while (!link_.notices_sent() && RankClock::now() < end) std::this_thread::yield();
  } catch (const std::exception&) {
    // The link is what failed.
  }
  link_.failed(failure, by_itself);
}

std::vector<RankFailure::Known> Communication::known_ranks() {
  std::vector<RankFailure::Known> ranks;
  for (int k = 0; k < link_.size(); ++k)
    ranks.push_back({link_.host(k), peers_[static_cast<std::size_t>(k)].doing});
  const std::lock_guard lock(board_.mutex);
  ranks[static_cast<std::size_t>(link_.rank())].doing = board_.doing_text();
  return ranks;
}

void Communication::notify_others(const NoticeHead& head, std::string_view text) {
  const std::vector<std::byte> notice = write_notice(head, text);
  for (int k = 0; k < link_.size(); ++k)
    if (k != link_.rank()) link_.notify(k, notice);
}

}  // namespace sotto
