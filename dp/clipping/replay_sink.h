// Backward's sink for gradients of a captured loss (memory/captured_loss.h) on a GPU: one replay of
// a CUDA graph clips them all, unless other gradients arrived, too.
#pragma once

#include <memory>
#include <string>

#include "autograd/sink.h"
#include "dp/clipping/captured_gpu_clip.h"
#include "dp/clipping/clip_accumulator.h"
#include "dp/clipping/one_pass_sink.h"

namespace sotto::inline dp {

// The captured clipping that a clipper keeps and replays for each physical batch.
struct ClipGraph {
  std::unique_ptr<CapturedClip> captured;
  std::string failure_reason = "no captured loss";  // of the last physical batch; empty: replayed
};

class ReplaySink final : public GradSink {
 public:
  // Gradients that are not captured go to `rest`. All arguments must outlive this object.
  ReplaySink(const ClipBatch& batch, const Tensor& losses, ClipGraph& graph, OnePassSink& rest)
      : batch_(batch), losses_(losses), graph_(graph), rest_(rest) {}
  bool bounds_influence() const override { return true; }
  bool keeps() const override { return true; }
  void receive(Parameter& parameter, std::vector<PerSampleGrad> uses) override;

  // no: the gradients cannot be clipped by a replay; no side effects. not_reliable: the host must
  // clip them; only the losses were added. added: losses and clipped sums were added.
  enum class Outcome { no, not_reliable, added };
  Outcome replay(ClipAccumulator& accumulator);
  // Moves the captured gradients to `rest`.
  void hand_on();

 private:
  const ClipBatch& batch_;
  const Tensor& losses_;
  ClipGraph& graph_;
  OnePassSink& rest_;
  ParameterUses gradients_;
};

}  // namespace sotto::inline dp
