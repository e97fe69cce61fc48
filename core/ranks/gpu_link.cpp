#include "core/ranks/gpu_link.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

#include "core/cuda/cuda_library.h"
#include "core/cuda/nccl.h"
#include "core/error.h"
#include "core/ranks/collectives.h"
#include "core/ranks/host_name.h"
#include "core/ranks/operation.h"
#include "core/ranks/rank_failure.h"
#include "core/ranks/tensor_moves.h"

namespace sotto {

namespace {

// How often a rank looks whether its bytes have arrived, after the first looks.
constexpr auto first_looks = std::chrono::microseconds(200);
constexpr auto pause = std::chrono::microseconds(100);
// Bytes that have not arrived so long after all ranks were there will not.
constexpr auto longest = std::chrono::hours(1);

class NcclLink final : public GpuLink, public std::enable_shared_from_this<NcclLink> {
 public:
  // Collective.
  NcclLink(const Nccl& nccl, Device device, const NcclId& id, int ranks, int rank)
      : nccl_(nccl), device_(device) {
    cuda_runtime().stream(device_.index);
    nccl_check(nccl_, "ncclCommInitRank", nccl_.comm_init_rank(&communicator_, ranks, id, rank));
  }
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;
  // NCCL may wait here for the other ranks of the host, which end theirs, too.
  ~NcclLink() override { abort(); }

  Device device() const override { return device_; }
  Pending exchange(Ranks& ranks, std::string_view place, std::vector<Ranks::Bytes> send,
                   std::vector<Ranks::Room> receive) override;

 private:
  class Wait;
  void abort() {
    if (void* const communicator = std::exchange(communicator_, nullptr))
      nccl_.comm_abort(communicator);
  }
  // Calls f. If that throws, the run ends on all ranks, and NCCL's work with it: the GPU would wait
  // for ranks that are gone.
  template <class F>
  auto guarded(Ranks& ranks, const F& f);
  void queue(int own, const std::vector<Ranks::Bytes>& send,
             const std::vector<Ranks::Room>& receive);
  // Throws if the run or NCCL has failed.
  void check_running(Ranks& ranks, std::string_view place) const;

  const Nccl& nccl_;
  Device device_;
  void* communicator_ = nullptr;
};

template <class F>
auto NcclLink::guarded(Ranks& ranks, const F& f) {
  try {
    return f();
  } catch (const RankFailure&) {
    abort();
    throw;
  } catch (const std::exception& error) {
    ranks.fail(error.what());
    abort();
    ranks.check_running();
    throw;
  }
}

void NcclLink::check_running(Ranks& ranks, std::string_view place) const {
  ranks.check_running();
  check(communicator_ != nullptr, "{}: the GPUs' link has ended", place);
  int error = nccl_success;
  nccl_check(nccl_, "ncclCommGetAsyncError", nccl_.comm_get_async_error(communicator_, &error));
  if (error != nccl_in_progress) nccl_check(nccl_, std::string(place).c_str(), error);
}

class NcclLink::Wait final : public Pending::Work {
 public:
  Wait(std::shared_ptr<NcclLink> link, Ranks& ranks, std::string_view place)
      : link_(std::move(link)),
        ranks_(ranks),
        place_(place),
        event_(cuda_runtime().record(link_->device_.index)) {}
  void wait() override {
    const auto since = RankClock::now();
    while (!link_->guarded(ranks_, [&] { return arrived(since); })) {
      if (RankClock::now() - since > first_looks) {
        std::this_thread::sleep_for(pause);
      } else {
        std::this_thread::yield();
      }
    }
  }

 private:
  // An error from before the event makes the bytes worthless: it is asked for after the event.
  bool arrived(RankClock::time_point since) const {
    const bool reached = cuda_runtime().reached(*event_);
    link_->check_running(ranks_, place_);
    if (!reached && RankClock::now() - since > longest)
      throw SystemFailure(fmt::format("NCCL: {}: no bytes in an hour", place_));
    return reached;
  }

  std::shared_ptr<NcclLink> link_;
  Ranks& ranks_;
  std::string place_;
  std::unique_ptr<DeviceEvent> event_;
};

void NcclLink::queue(int own, const std::vector<Ranks::Bytes>& send,
                     const std::vector<Ranks::Room>& receive) {
  void* const stream = cuda_runtime().stream(device_.index);
  nccl_check(nccl_, "ncclGroupStart", nccl_.group_start());
  int result = nccl_success;
  for (int k = 0; k < static_cast<int>(send.size()) && result == nccl_success; ++k) {
    const Ranks::Bytes out = send[static_cast<std::size_t>(k)];
    const Ranks::Room in = receive[static_cast<std::size_t>(k)];
    if (k == own) continue;
    if (!out.empty())
      result = nccl_.send(out.data(), out.size(), nccl_uint8, k, communicator_, stream);
    if (!in.empty() && result == nccl_success)
      result = nccl_.receive(in.data(), in.size(), nccl_uint8, k, communicator_, stream);
  }
  const int ended = nccl_.group_end();
  nccl_check(nccl_, "ncclSend, ncclRecv", result);
  nccl_check(nccl_, "ncclGroupEnd", ended);
}

// Ends the run on all ranks unless they are at one place and agree on the sizes: their GPUs would
// wait for ever.
void compare(Ranks& ranks, std::string_view place, const std::vector<Ranks::Bytes>& send,
             const std::vector<Ranks::Room>& receive) {
  std::vector<std::uint64_t> sizes, theirs(receive.size());
  for (const Ranks::Bytes each : send) sizes.push_back(each.size());
  std::vector<Ranks::Bytes> own;
  std::vector<Ranks::Room> hear;
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    own.push_back(std::as_bytes(std::span(&sizes[k], 1)));
    hear.push_back(std::as_writable_bytes(std::span(&theirs[k], 1)));
  }
  ranks.exchange(place, std::move(own), std::move(hear)).wait();
  for (std::size_t k = 0; k < theirs.size(); ++k)
    if (theirs[k] != receive[k].size())
      ranks.fail(fmt::format("{}: rank {} sends {} bytes where rank {} has room for {}", place, k,
                             theirs[k], ranks.rank(), receive[k].size()));
  ranks.check_running();
}

Pending NcclLink::exchange(Ranks& ranks, std::string_view place, std::vector<Ranks::Bytes> send,
                           std::vector<Ranks::Room> receive) {
  const auto own = static_cast<std::size_t>(ranks.rank());
  return guarded(ranks, [&] {
    check_running(ranks, place);
    compare(ranks, place, send, receive);
    if (send[own].data() != receive[own].data())
      copy_bytes(receive[own].data(), device_, send[own].data(), device_, send[own].size());
    queue(ranks.rank(), send, receive);
    std::uint64_t sent = 0, received = 0;
    for (std::size_t k = 0; k < send.size(); ++k) {
      sent += k == own ? 0 : send[k].size();
      received += k == own ? 0 : receive[k].size();
    }
    Pending pending(std::make_unique<Wait>(shared_from_this(), ranks, place));
    return ranks.sent_by_gpus(place, sent, received, std::move(pending));
  });
}

// A rank's GPU, and the NCCL that it would use.
struct Own {
  std::array<char, 256> host{}, gpu{}, nccl{}, reason{};
  bool linked = false;  // that GPU, already
};

void write(std::array<char, 256>& to, const std::string& text) {
  std::copy_n(text.data(), std::min(text.size(), to.size() - 1), to.begin());
}

Own own(const GpuConnection& gpus, Device device) {
  Own own;
  write(own.host, host_name());
  if (device == cpu) return own;
  own.linked = gpus.link && gpus.link->device() == device;
  write(own.gpu, cuda_runtime().bus_id(device.index));
  try {
    write(own.nccl, nccl_version(load_nccl()));
  } catch (const SystemFailure& failure) {
    write(own.reason, failure.what());
  }
  return own;
}

// Why the GPUs cannot be connected; empty if they can.
std::string reason(const std::vector<Own>& all) {
  for (std::size_t k = 0; k < all.size(); ++k) {
    if (all[k].gpu[0] == '\0') return fmt::format("rank {} has none", k);
    if (all[k].nccl[0] == '\0') return fmt::format("rank {}: {}", k, all[k].reason.data());
    if (all[k].nccl != all[0].nccl)
      return fmt::format("rank {} has NCCL {}, and rank 0 {}", k, all[k].nccl.data(),
                         all[0].nccl.data());
    for (std::size_t other = 0; other < k; ++other) {
      if (all[k].host == all[other].host && all[k].gpu == all[other].gpu)
        return fmt::format("ranks {} and {} have the same one", other, k);
    }
  }
  return "";
}

// Collective.
std::shared_ptr<GpuLink> connected(Ranks& ranks, Device device) {
  const Nccl& nccl = load_nccl();
  const auto id = broadcast(ranks, "NCCL's id", [&] {
    NcclId unique{};
    nccl_check(nccl, "ncclGetUniqueId", nccl.get_unique_id(&unique));
    return unique;
  });
  std::shared_ptr<GpuLink> link;
  abort_on_error(ranks, [&] {
    link = std::make_shared<NcclLink>(nccl, device, id, ranks.size(), ranks.rank());
  });
  return link;
}

}  // namespace

void connect_gpus(Ranks& ranks, Device device) {
  if (ranks.size() == 1) return;
  GpuConnection& gpus = ranks.gpus();
  const std::vector<Own> all = all_gather(ranks, "GPUs of ranks", own(gpus, device));
  if (std::ranges::all_of(all, [](const Own& each) { return each.linked; })) return;
  gpus = {};
  if (std::ranges::all_of(all, [](const Own& each) { return each.gpu[0] == '\0'; })) return;
  if (const std::string why = reason(all); !why.empty()) {
    gpus.text = fmt::format("GPUs send through the hosts' memory ({})", why);
    return;
  }
  gpus = {connected(ranks, device),
          fmt::format("GPUs send to each other by NCCL {}", all[0].nccl.data())};
  // NCCL connects two ranks, and takes memory, when they first send.
  const std::vector<float> none(static_cast<std::size_t>(ranks.size()));
  const Tensor first = Tensor::from(none, {ranks.size()}).to(device);
  std::vector<Tensor> blocks;
  for (int k = 0; k < ranks.size(); ++k) blocks.push_back(first.slice(0, k, k + 1));
  const Tensor own_block = blocks[static_cast<std::size_t>(ranks.rank())];
  all_gather_tensors(ranks, "NCCL's first bytes", own_block, std::move(blocks)).wait();
}

}  // namespace sotto
