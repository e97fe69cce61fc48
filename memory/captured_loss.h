// A loss whose forward and backward are captured once on a GPU and then done by one call each, so
// that small networks are bound by the GPU and not by the host that launches its kernels
// (core/cuda/capture.h, docs/gpu.md).
//
// It is an operation on the caller's tape like others. What becomes of gradients is outside of what
// is captured, and happens anew each time: clipping, its statistics, noise, ledger and update, and
// everything random.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/module.h"

namespace sotto::memory {

class CapturedLoss {
 public:
  // One loss for each row, [rows], of values with a row along axis 0 each, on the model's device.
  // A function of the batch and the model's parameters alone: of whatever else it reads, what it
  // read when it was captured is taken for good.
  using Loss = std::function<Var(Tape& tape, const std::vector<Tensor>& batch)>;

  // For batches of at most `rows` rows, by one thread at a time. The model must outlive it. Throws
  // std::invalid_argument for less than one row.
  CapturedLoss(nn::Module& model, std::int64_t rows, Loss loss);
  CapturedLoss(const CapturedLoss&) = delete;
  CapturedLoss& operator=(const CapturedLoss&) = delete;
  ~CapturedLoss();

  // The losses [n] of a batch of n rows, wherever its tensors are. On a private tape fewer rows
  // than `rows` are computed among others, of which nothing leaves; on an ordinary tape a batch is
  // full, and sinks take sums alone (GradSink::sums_only).
  //
  // The first call captures: it computes the loss, captures it, does it again, and compares; so do
  // the next four with a batch unlike the one before. Where one bit differs, or anything cannot be
  // captured, `loss` is called as if there were no capture, and reason() says why. Captured anew is
  // a call with another parameter, address, type, shape or layout of one, frozen or not; with other
  // precisions, tape options or shapes of the batch. Backward comes before the next call; its
  // gradients are used before the next call, too. Throws what `loss` throws.
  Var operator()(Tape& tape, const std::vector<Tensor>& batch);

  // Why the last call was computed in the ordinary way; empty when it was captured.
  const std::string& reason() const { return reason_; }
  // How often it was captured, and how many calls were computed so, the first ones included.
  std::int64_t captures() const { return captures_; }
  std::int64_t replays() const { return replays_; }
  // The next call captures anew: after a change of what only `loss` knows.
  void forget();

 private:
  class Pass;
  // All numbers that are part of what is captured.
  using Setting = std::vector<std::int64_t>;

  std::string obstacle(const Tape& tape, std::int64_t rows) const;
  Setting setting_of(const Tape& tape, const std::vector<Tensor>& batch);
  void capture(const Tape& tape, const std::vector<Tensor>& batch);
  void confirm(const std::vector<Tensor>& batch);

  nn::Module& model_;
  std::int64_t rows_;
  Loss loss_;
  std::optional<Setting> setting_;  // of the last attempt
  std::string failure_;             // why that one failed
  std::shared_ptr<Pass> pass_;      // what came of it
  std::string reason_;
  std::int64_t captures_ = 0, replays_ = 0;
};

}  // namespace sotto::memory
