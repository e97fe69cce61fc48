// A loss whose forward and backward are captured as CUDA graphs and then launched by one call each,
// so that small networks are limited by the GPU and not by the host that launches its kernels
// (core/cuda/capture.h, docs/appendix/gpu-notes.md).
//
// The caller's tape records it as one operation. The graphs contain only the loss and its
// gradients. Clipping, its statistics, noise, ledger, update and all randomness run outside of them
// at every step.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nn/module.h"

namespace sotto::memory {

// Replays a loss as a CUDA graph. Use it for small models on a GPU:
//
//   memory::CapturedLoss captured(model, rows, loss);
//   const Var losses = captured(tape, {inputs, targets});
class CapturedLoss {
 public:
  // Returns one loss for each row, [rows], of tensors with rows on axis 0, on the model's device.
  // It must be a function of the batch and the model's parameters alone: any other value it reads
  // is fixed at capture.
  using Loss = std::function<Var(Tape& tape, const std::vector<Tensor>& batch)>;

  // Serves batches of at most `rows` rows, from one thread at a time. The model must outlive it.
  // Throws std::invalid_argument unless rows >= 1.
  CapturedLoss(nn::Module& model, std::int64_t rows, Loss loss);
  CapturedLoss(const CapturedLoss&) = delete;
  CapturedLoss& operator=(const CapturedLoss&) = delete;
  ~CapturedLoss();

  // Returns the losses [n] of a batch of n rows on any device. On a private tape, n < `rows` is
  // allowed: the batch is padded with zero rows, whose losses are not returned. On an ordinary tape
  // n must be `rows`, and sinks receive sums only (GradSink::sums_only).
  //
  // The first call computes the loss, captures it, replays it and compares the results bit by bit;
  // the next four calls with a batch unlike the one before compare once more. If a bit differs, or
  // capture fails, `loss` is called without a graph, and reason() returns the reason. A new capture
  // is made when a parameter's address, type, shape, layout or trainability changes, or a
  // precision, a tape option or the batch's shape. Run backward, and use its gradients, before the
  // next call. Throws the errors of `loss`.
  Var operator()(Tape& tape, const std::vector<Tensor>& batch);

  // Why the last call ran without a graph; empty if it was a replay.
  const std::string& reason() const { return reason_; }
  // The number of captures, and of calls computed by replays, the first call included.
  std::int64_t captures() const { return captures_; }
  // Calls computed by replays, the first one included.
  std::int64_t replays() const { return replays_; }
  // Makes the next call capture again. Call it after a change of state that `loss` reads.
  void forget();

 private:
  struct Attempt;

  nn::Module& model_;
  std::int64_t rows_;
  Loss loss_;
  std::unique_ptr<Attempt> attempt_;  // the last one to capture
  std::string reason_;
  std::int64_t captures_ = 0, replays_ = 0;
};

}  // namespace sotto::memory
