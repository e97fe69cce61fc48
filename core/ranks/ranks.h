// The processes of a distributed run. Ranks move bytes and never reduce. The owner of an element
// adds the ranks' values in rank order, so no result depends on transport or arrival order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sotto {

class GpuLink;

// How the GPUs of ranks send to each other (core/ranks/gpu_link.h).
struct GpuConnection {
  std::shared_ptr<GpuLink> link;  // null: through the hosts' memory
  std::string text;               // a line for people; empty: there are no GPUs, or one rank
};

// An operation that is under way. wait() returns when its bytes have arrived and its buffers may be
// used again; a destroyed one has been waited for. Throws RankFailure if a rank failed.
class Pending {
 public:
  // The work that remains, of one kind of ranks.
  class Work {
   public:
    virtual ~Work() = default;
    // As Pending::wait().
    virtual void wait() = 0;
  };
  // Without work there is nothing to wait for.
  explicit Pending(std::unique_ptr<Work> work = nullptr);
  // The other one has nothing left to wait for.
  Pending(Pending&&) noexcept;
  Pending& operator=(Pending&&) noexcept;
  ~Pending();
  // Returns when the operation has ended. Throws RankFailure if a rank failed.
  void wait();

 private:
  std::unique_ptr<Work> work_;
};

// One rank's end of a distributed run. All ranks call the same operations in the same order.
// `place` labels the call ("Engine: clipped sums"). If two ranks meet at different calls, both
// throw an error naming the two, instead of deadlocking. Operations may overlap: several may be
// pending. Buffers must stay alive until their operation was waited for. One thread at a time may
// call. Collectives on values are in core/ranks/collectives.h.
class Ranks {
 public:
  // Bytes to send, and memory for those to receive.
  using Bytes = std::span<const std::byte>;
  // Memory for bytes to receive.
  using Room = std::span<std::byte>;

  virtual ~Ranks() = default;
  // This rank's number, from 0.
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The number of ranks on this host, this one included.
  virtual int ranks_on_host() const = 0;

  // Sends send[k] to rank k and receives receive[k] from rank k; the block for oneself is copied.
  // Sizes agree on both sides (an empty block sends nothing); otherwise all ranks fail.
  virtual Pending exchange(std::string_view place, std::vector<Bytes> send,
                           std::vector<Room> receive) = 0;
  // Receives rank k's `send` in receive[k], on every rank.
  virtual Pending all_gather(std::string_view place, Bytes send, std::vector<Room> receive) = 0;
  // Rank 0's bytes, on every rank; what others pass is ignored. Any size.
  virtual std::vector<std::byte> broadcast(std::string_view place, Bytes bytes) = 0;
  // All ranks' bytes, in their order, on rank 0; empty on others. Small, any size.
  virtual std::vector<std::vector<std::byte>> gather(std::string_view place, Bytes bytes) = 0;
  // Rank 0's send[k], on rank k; what others pass is ignored. Any sizes.
  virtual std::vector<std::byte> scatter(std::string_view place,
                                         const std::vector<Bytes>& send) = 0;
  // Ends the run: every rank's waiting or next operation throws a RankFailure with this message,
  // this rank and its host. Returns.
  virtual void fail(std::string_view message) noexcept = 0;
  // Throws RankFailure if the run has failed.
  virtual void check_running() = 0;

  // The connection that connect_gpus() made.
  virtual GpuConnection& gpus() { return gpus_; }
  // Hook for instrumentation: the GPU link reports each transfer with the bytes that this rank's
  // GPU sends to other ranks and receives. Returns `pending`.
  virtual Pending sent_by_gpus(std::string_view /*place*/, std::uint64_t /*sent*/,
                               std::uint64_t /*received*/, Pending pending) {
    return pending;
  }

 private:
  GpuConnection gpus_;
};

}  // namespace sotto
