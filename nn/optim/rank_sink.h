// Ordinary data parallelism: each rank computes the gradients of its part of a batch, and all get
// the sums over ranks.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "autograd/sink.h"
#include "core/ranks/ranks.h"

namespace sotto::nn {

struct BucketSizes {
  // Gradients travel in buckets of so many bytes; the first is small, so that it leaves early.
  std::size_t first = std::size_t{1} << 20;
  std::size_t others = std::size_t{25} << 20;  // all after the first
};

// The sink of one ordinary (not private) backward on each rank. A bucket of gradients leaves for
// its owners as soon as it is full, while backward goes on. Each element has one owner, which adds
// the ranks' values in their order, in f32, or f64 for f64: all ranks get the same bits, whatever
// the transport and the device. The loss's seed is 1 / (rows of all ranks):
//
//   nn::RankSink sink(*ranks, model.parameters());
//   tape.backward(loss, sink, 1.0 / rows_of_all_ranks);
//   optimizer.step(sink.gradients());
//
// All ranks make it with the same parameters, and start with the same values (broadcast_values).
// Private tapes refuse it: the Engine has ranks of its own.
class RankSink final : public GradSink {
 public:
  // Frozen parameters are left out. The ranks must outlive the sink.
  RankSink(Ranks& ranks, const std::vector<Parameter*>& parameters, const BucketSizes& sizes = {});
  void receive(Parameter& parameter, std::vector<PerSampleGrad> uses) override;
  bool has(const Parameter& parameter) const;  // whether its gradient was added
  bool sums_only() const override { return true; }
  // Adds a gradient that was summed before. Throws std::invalid_argument for a second gradient of a
  // parameter, and for one that is not among the sink's.
  void add(Parameter& parameter, const Tensor& gradient);
  // The sums over ranks. A parameter without a gradient on any rank has none; a rank without rows
  // need not run backward. All ranks call it, once.
  Gradients gradients();

 private:
  struct Bucket {
    // Where gradients are added.
    const Tensor& room(int ranks);
    void begin_exchange(Ranks& ranks);
    void add_shards(Ranks& ranks);

    std::vector<Parameter*> parameters;
    std::vector<std::int64_t>
        offsets;  // of each parameter; then of the counts of ranks that had it
    std::int64_t elements = 0, shard = 0;
    Dtype dtype = Dtype::f32;
    Device device = cpu;  // of the parameters
    std::size_t missing = 0;
    Tensor values{}, received{};  // ranks x shard elements
    Pending pending{};
  };
  struct Slot {
    std::size_t bucket, index;
    bool added = false;
  };

  void place(Parameter& parameter, std::size_t bytes);
  void begin_full_buckets(bool all);

  Ranks& ranks_;
  std::vector<Bucket> buckets_;
  std::size_t begun_ = 0, added_ = 0;  // buckets
  std::unordered_map<const Parameter*, Slot> slots_;
};

// Overwrites the parameters' values with those of rank 0, and connects the ranks' GPUs. All ranks
// call it.
void broadcast_values(Ranks& ranks, const std::vector<Parameter*>& parameters);
// Returns rank 0's tensors, on the CPU, on every rank; every other rank's argument is ignored. All
// ranks call it.
std::map<std::string, Tensor> broadcast_tensors(Ranks& ranks,
                                                const std::map<std::string, Tensor>& tensors);

}  // namespace sotto::nn
