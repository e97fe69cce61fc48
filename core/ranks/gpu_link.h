// Bytes from GPU to GPU between ranks, by NVIDIA's NCCL, which is loaded at run time.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "core/device.h"
#include "core/ranks/ranks.h"

namespace sotto {

// One rank's part in a communicator of NCCL. Bytes are sent and received, and never added by NCCL.
class GpuLink {
 public:
  virtual ~GpuLink() = default;
  // The GPU whose memory is moved.
  virtual Device device() const = 0;
  // As Ranks::exchange, of memory of the GPU, in order with the GPU's other work. Before anything
  // is queued the ranks compare place and sizes. The result's wait() returns when the bytes are
  // there. If NCCL reports an error, it ends the run; if the run has failed, it ends NCCL's work.
  virtual Pending exchange(Ranks& ranks, std::string_view place, std::vector<Ranks::Bytes> send,
                           std::vector<Ranks::Room> receive) = 0;
};

// Connects the ranks' GPUs (Ranks::gpus), if each rank passes another GPU and all have the same
// NCCL; if not, the line for people says why. GPUs that are connected stay so. An Engine on ranks
// does this, and so does nn::broadcast_values(). No operation may be pending. All ranks call it.
// Throws RankFailure if NCCL fails. Ranks that are threads of one process hang if it fails on one
// alone.
void connect_gpus(Ranks& ranks, Device device);

}  // namespace sotto
