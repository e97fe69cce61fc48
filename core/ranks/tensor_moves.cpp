#include "core/ranks/tensor_moves.h"

#include <cstring>
#include <memory>
#include <utility>

#include "core/cuda/cuda_library.h"
#include "core/error.h"
#include "core/ranks/gpu_link.h"

namespace sotto {

namespace {

// Tensors of one operation.
struct Moved {
  std::vector<Tensor> send, receive;  // by rank
  bool gathers = false;               // send[0] goes to all
  Device device = cpu;
};

bool empty(const Tensor& x) { return !x.defined() || x.numel() == 0; }

std::span<std::byte> bytes_of(const Tensor& x) {
  if (empty(x)) return {};
  return {static_cast<std::byte*>(x.view().data), x.bytes()};
}

// The device of all tensors.
Device device_of(std::string_view place, const Moved& moved) {
  Device device = cpu;
  bool first = true;
  for (const auto* tensors : {&moved.send, &moved.receive}) {
    for (const Tensor& x : *tensors) {
      if (!x.defined()) continue;
      check(empty(x) || x.contiguous(), "{}: a tensor {} with gaps", place, x.shape());
      check(first || x.device() == device, "{}: tensors on several devices", place);
      device = x.device();
      first = false;
    }
  }
  return device;
}

// Pinned memory of the host.
class PinnedBlock {
 public:
  PinnedBlock(Device device, std::size_t bytes)
      : memory_(&pinned_allocator(device.index)), bytes_(bytes) {
    if (bytes > 0) data_ = memory_->allocate(bytes);
  }
  PinnedBlock(PinnedBlock&& other) noexcept
      : memory_(other.memory_), bytes_(other.bytes_), data_(std::exchange(other.data_, nullptr)) {}
  PinnedBlock& operator=(PinnedBlock&&) = delete;
  ~PinnedBlock() {
    if (data_) memory_->release(data_);
  }
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(data_), bytes_}; }

 private:
  Allocator* memory_;
  std::size_t bytes_;
  void* data_ = nullptr;
};

// Keeps the tensors while their bytes are under way.
class Kept final : public Pending::Work {
 public:
  Kept(Moved moved, Pending pending) : moved_(std::move(moved)), pending_(std::move(pending)) {}
  void wait() override { pending_.wait(); }

 private:
  Moved moved_;
  Pending pending_;
};

// Bytes of a GPU's tensors under way through the host's memory.
class Staged final : public Pending::Work {
 public:
  // Copies what is sent from the device, and what this rank sends itself within it.
  Staged(const Ranks& ranks, std::string_view place, Moved moved) : moved_(std::move(moved)) {
    const auto own = static_cast<std::size_t>(ranks.rank());
    const std::size_t own_sent = moved_.gathers ? 0 : own;
    for (std::size_t k = 0; k < moved_.send.size(); ++k) {
      const bool stays = !moved_.gathers && k == own;
      const auto from = stays ? std::span<std::byte>() : bytes_of(moved_.send[k]);
      sent_.emplace_back(moved_.device, from.size());
      copy_bytes(sent_.back().bytes().data(), cpu, from.data(), moved_.device, from.size());
    }
    const Tensor &from = moved_.send[own_sent], &to = moved_.receive[own];
    check(bytes_of(from).size() == bytes_of(to).size(),
          "{}: a rank sends itself {} bytes and has room for {}", place, bytes_of(from).size(),
          bytes_of(to).size());
    if (bytes_of(from).data() != bytes_of(to).data()) copy_elements(from, to);
    moved_.receive[own] = {};
    for (const Tensor& each : moved_.receive)
      received_.emplace_back(moved_.device, bytes_of(each).size());
  }
  const std::vector<PinnedBlock>& sent() const { return sent_; }
  std::vector<Ranks::Room> rooms() const {
    std::vector<Ranks::Room> rooms;
    for (const PinnedBlock& block : received_) rooms.push_back(block.bytes());
    return rooms;
  }
  void begun(Pending pending) { pending_ = std::move(pending); }
  void wait() override {
    pending_.wait();
    for (std::size_t k = 0; k < received_.size(); ++k) {
      const auto from = received_[k].bytes();
      copy_bytes(bytes_of(moved_.receive[k]).data(), moved_.device, from.data(), cpu, from.size());
    }
  }

 private:
  Moved moved_;
  std::vector<PinnedBlock> sent_, received_;
  Pending pending_{};  // destroyed first
};

std::vector<Ranks::Room> rooms_of(const std::vector<Tensor>& tensors) {
  std::vector<Ranks::Room> rooms;
  for (const Tensor& each : tensors) rooms.push_back(bytes_of(each));
  return rooms;
}

Pending begin(Ranks& ranks, std::string_view place, std::vector<Ranks::Bytes> send,
              std::vector<Ranks::Room> receive, bool gathers) {
  if (gathers) return ranks.all_gather(place, send[0], std::move(receive));
  return ranks.exchange(place, std::move(send), std::move(receive));
}

Pending staged(Ranks& ranks, std::string_view place, Moved moved) {
  const bool gathers = moved.gathers;
  auto work = std::make_unique<Staged>(ranks, place, std::move(moved));
  std::vector<Ranks::Room> rooms = work->rooms();
  std::vector<Ranks::Bytes> sent;
  for (const PinnedBlock& block : work->sent()) sent.emplace_back(block.bytes());
  // The host's copy of what is gathered is its own room, too.
  if (gathers) rooms[static_cast<std::size_t>(ranks.rank())] = work->sent()[0].bytes();
  work->begun(begin(ranks, place, std::move(sent), std::move(rooms), gathers));
  return Pending(std::move(work));
}

// By the GPUs themselves.
Pending linked(GpuLink& link, Ranks& ranks, std::string_view place, Moved moved) {
  std::vector<Ranks::Bytes> sent;
  for (std::size_t k = 0; k < moved.receive.size(); ++k)
    sent.emplace_back(bytes_of(moved.send[moved.gathers ? 0 : k]));
  Pending pending = link.exchange(ranks, place, std::move(sent), rooms_of(moved.receive));
  return Pending(std::make_unique<Kept>(std::move(moved), std::move(pending)));
}

Pending move(Ranks& ranks, std::string_view place, Moved moved) {
  const auto size = static_cast<std::size_t>(ranks.size());
  check((moved.gathers || moved.send.size() == size) && moved.receive.size() == size,
        "{}: {} tensors sent and {} received for {} ranks", place, moved.send.size(),
        moved.receive.size(), size);
  moved.device = device_of(place, moved);
  if (moved.device != cpu) {
    const std::shared_ptr<GpuLink> link = ranks.gpus().link;
    if (!link) return staged(ranks, place, std::move(moved));
    check(link->device() == moved.device, "{}: tensors on another GPU than the ranks' link", place);
    return linked(*link, ranks, place, std::move(moved));
  }
  std::vector<Ranks::Bytes> sent;
  for (const Tensor& each : moved.send) sent.emplace_back(bytes_of(each));
  Pending pending = begin(ranks, place, std::move(sent), rooms_of(moved.receive), moved.gathers);
  return Pending(std::make_unique<Kept>(std::move(moved), std::move(pending)));
}

}  // namespace

Pending exchange_tensors(Ranks& ranks, std::string_view place, std::vector<Tensor> send,
                         std::vector<Tensor> receive) {
  return move(ranks, place, {std::move(send), std::move(receive)});
}

Pending all_gather_tensors(Ranks& ranks, std::string_view place, Tensor send,
                           std::vector<Tensor> receive) {
  return move(ranks, place, {{std::move(send)}, std::move(receive), true});
}

void copy_elements(const Tensor& from, const Tensor& to) {
  const auto source = bytes_of(from), target = bytes_of(to);
  check(source.size() == target.size(), "copy_elements: {} bytes to {}", source.size(),
        target.size());
  if (source.empty() || source.data() == target.data()) return;
  copy_bytes(target.data(), to.device(), source.data(), from.device(), source.size());
}

}  // namespace sotto
