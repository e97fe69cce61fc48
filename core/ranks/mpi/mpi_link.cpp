#include "core/ranks/mpi/mpi_link.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <future>
#include <map>
#include <thread>
#include <utility>

#include <fmt/core.h>
#include <mpi.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/error.h"
#include "core/ranks/host_name.h"

namespace sotto {

namespace {

// Counts are ints, and one call of MPI may copy a whole message: pieces leave time for heartbeats.
constexpr std::size_t piece_bytes = std::size_t{1} << 24;
constexpr std::size_t pieces_at_once = 2;
constexpr int notice_tag = 1, first_tag = 2;
// The pieces of several transfers to one rank are told apart by their tags; MPI has at least 2^15.
constexpr std::uint32_t tags = 1 << 14;
constexpr std::size_t host_bytes = 256;
// The ranks that do not report a failure leave so much time to the one that does.
constexpr auto report_time = std::chrono::seconds(1);
// MPI_Abort may wait for what is dead.
constexpr auto abort_time = std::chrono::seconds(2);
constexpr auto finalize_time = std::chrono::seconds(5);

void mpi_check(const char* call, int error) {
  if (error == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(error, text.data(), &length);
  throw SystemFailure(fmt::format("{}: {}", call, text.data()));
}

// MPI_Abort has the launcher drop what it has not read of this process' output.
void await_reader_of_stderr() {
  const auto limit = std::chrono::steady_clock::now() + report_time;
  for (int unread = 0; ioctl(STDERR_FILENO, FIONREAD, &unread) == 0 && unread > 0;) {
    if (std::chrono::steady_clock::now() > limit) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// begin(offset, count, request) begins a message with a piece of the bytes.
template <class Begin>
class MpiTransfer final : public Link::Transfer {
 public:
  MpiTransfer(std::size_t bytes, bool receives, Begin begin)
      : begin_(std::move(begin)), bytes_(bytes), receives_(receives) {
    requests_.fill(MPI_REQUEST_NULL);
    done();
  }
  // A send cannot be taken back; it is not pursued once MPI is not called any more.
  ~MpiTransfer() override {
    for (MPI_Request& request : requests_) {
      if (request == MPI_REQUEST_NULL) continue;
      if (receives_) MPI_Cancel(&request);
      MPI_Request_free(&request);
    }
  }
  bool done() override {
    bool all = true;
    for (MPI_Request& request : requests_) {
      int piece_done = 0;
      mpi_check("MPI_Test", MPI_Test(&request, &piece_done, MPI_STATUS_IGNORE));
      if (piece_done && begun_ < bytes_) {
        const std::size_t count = std::min(piece_bytes, bytes_ - begun_);
        begin_(begun_, static_cast<int>(count), &request);
        begun_ += count;
      }
      all &= request == MPI_REQUEST_NULL;
    }
    return all;
  }

 private:
  Begin begin_;
  std::size_t bytes_, begun_ = 0;
  bool receives_;
  std::array<MPI_Request, pieces_at_once> requests_;
};

void exit_at_once(int status, void*) {
  std::fflush(nullptr);
  std::_Exit(status);
}

// MPICH 4.0 over TCP now and then does not return from MPI_Finalize, when all ranks have called it
// and no message is under way. The program then goes on, and ends without it.
void finalize() {
  std::promise<void> ended;
  auto has_ended = ended.get_future();
  std::thread([ended = std::move(ended)]() mutable {
    MPI_Finalize();
    ended.set_value();
  }).detach();
  if (has_ended.wait_for(finalize_time) == std::future_status::timeout)
    on_exit(exit_at_once, nullptr);
}

class MpiLink final : public Link {
 public:
  MpiLink() {
    int given = 0;
    mpi_check("MPI_Init_thread", MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given));
    mpi_check("MPI_Comm_dup", MPI_Comm_dup(MPI_COMM_WORLD, &world_));
    MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(world_, &rank_);
    MPI_Comm_size(world_, &size_);
    MPI_Comm host = MPI_COMM_NULL;
    mpi_check("MPI_Comm_split_type",
              MPI_Comm_split_type(world_, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host));
    MPI_Comm_size(host, &ranks_on_host_);
    MPI_Comm_free(&host);
    std::array<char, host_bytes> name{};
    const std::string own = host_name().substr(0, host_bytes - 1);
    std::copy(own.begin(), own.end(), name.begin());
    hosts_.resize(static_cast<std::size_t>(size_));
    mpi_check("MPI_Allgather", MPI_Allgather(name.data(), host_bytes, MPI_BYTE, hosts_.data(),
                                             host_bytes, MPI_BYTE, world_));
    await_notice();
  }
  // Every message is received before the end, also heartbeats of ranks that ended last.
  ~MpiLink() override {
    MPI_Barrier(world_);
    for (Notice rest; poll(rest);) continue;
    MPI_Barrier(world_);
    MPI_Cancel(&incoming_);
    MPI_Wait(&incoming_, MPI_STATUS_IGNORE);
    MPI_Comm_free(&world_);
    finalize();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int ranks_on_host() const override { return ranks_on_host_; }
  std::string host(int rank) const override {
    return hosts_[static_cast<std::size_t>(rank)].data();
  }

  void notify(int to, Ranks::Bytes notice) override {
    Outgoing& out = outgoing_.emplace_back();
    out.bytes.assign(notice.begin(), notice.end());
    mpi_check("MPI_Isend", MPI_Isend(out.bytes.data(), static_cast<int>(out.bytes.size()), MPI_BYTE,
                                     to, notice_tag, world_, &out.request));
  }
  bool poll(Notice& notice) override {
    notices_sent();
    int arrived = 0, count = 0;
    MPI_Status status;
    mpi_check("MPI_Test", MPI_Test(&incoming_, &arrived, &status));
    if (!arrived) return false;
    MPI_Get_count(&status, MPI_BYTE, &count);
    notice = {status.MPI_SOURCE, {buffer_.begin(), buffer_.begin() + count}};
    await_notice();
    return true;
  }
  bool notices_sent() override {
    for (int sent = 1; sent && !outgoing_.empty();) {
      mpi_check("MPI_Test", MPI_Test(&outgoing_.front().request, &sent, MPI_STATUS_IGNORE));
      if (sent) outgoing_.pop_front();
    }
    return outgoing_.empty();
  }
  std::unique_ptr<Transfer> send(int to, Ranks::Bytes bytes) override {
    const auto begin = [this, to, bytes, tag = tag_of(sends_[to])](std::size_t offset, int count,
                                                                   MPI_Request* request) {
      mpi_check("MPI_Isend",
                MPI_Isend(bytes.data() + offset, count, MPI_BYTE, to, tag, world_, request));
    };
    return std::make_unique<MpiTransfer<decltype(begin)>>(bytes.size(), false, begin);
  }
  std::unique_ptr<Transfer> receive(int from, Ranks::Room room) override {
    const auto begin = [this, from, room, tag = tag_of(receives_[from])](
                           std::size_t offset, int count, MPI_Request* request) {
      mpi_check("MPI_Irecv",
                MPI_Irecv(room.data() + offset, count, MPI_BYTE, from, tag, world_, request));
    };
    return std::make_unique<MpiTransfer<decltype(begin)>>(room.size(), true, begin);
  }

  bool ends_together() const override { return true; }
  // One rank reports, also where all fail at once: rank 0, unless others found that it failed.
  void failed(const RankFailure& failure, bool by_itself) override {
    reports_ = rank_ == (failure.rank() == 0 && !by_itself ? 1 : 0);
    if (reports_) fmt::print(stderr, "{}\n", failure.what());
  }
  void abandon() override {
    if (reports_)
      await_reader_of_stderr();
    else
      std::this_thread::sleep_for(report_time);
    std::thread([] {
      std::this_thread::sleep_for(abort_time);
      std::_Exit(EXIT_FAILURE);
    }).detach();
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    std::_Exit(EXIT_FAILURE);
  }

 private:
  struct Outgoing {
    std::vector<std::byte> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  static int tag_of(std::uint32_t& transfers) {
    return first_tag + static_cast<int>(transfers++ % tags);
  }
  void await_notice() {
    mpi_check("MPI_Irecv", MPI_Irecv(buffer_.data(), static_cast<int>(buffer_.size()), MPI_BYTE,
                                     MPI_ANY_SOURCE, notice_tag, world_, &incoming_));
  }

  MPI_Comm world_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 0, ranks_on_host_ = 0;
  bool reports_ = false;
  std::vector<std::array<char, host_bytes>> hosts_;
  std::map<int, std::uint32_t> sends_, receives_;  // transfers with each rank
  std::array<std::byte, max_notice_bytes> buffer_{};
  MPI_Request incoming_ = MPI_REQUEST_NULL;
  std::deque<Outgoing> outgoing_;  // a deque: their buffers stay where they are
};

}  // namespace

}  // namespace sotto

extern "C" __attribute__((visibility("default"))) sotto::Link* sotto_mpi_link() {
  return new sotto::MpiLink;
}
