// Backward's sink for gradients of a captured loss (memory/captured_loss.h) on a GPU: one replay of
// a CUDA graph clips them all, unless other gradients arrived, too.
#pragma once

#include <map>
#include <string>

#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/sink.h"
#include "dp/clipping/captured_gpu_clip.h"
#include "dp/clipping/clip_accumulator.h"
#include "dp/clipping/one_pass_sink.h"

namespace sotto {

// The captured clippings of one captured loss that a clipper keeps and replays for its physical
// batches, by the number of rows of a unit.
struct ClipGraphs {
  std::map<std::int64_t, CapturedClip> captured;
  std::string failure_reason = "no captured loss";  // of the last physical batch; empty: replayed
};

class ReplaySink final : public GradSink {
 public:
  // Gradients that are not captured go to `rest`. `grouping` is null for units of one row each. All
  // arguments must outlive this object.
  ReplaySink(const ClipBatch& batch, const Tensor& losses, const Grouping* grouping,
             ClipGraphs& graphs, OnePassSink& rest)
      : batch_(batch), losses_(losses), grouping_(grouping), graphs_(graphs), rest_(rest) {}
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
  // The reason why these gradients cannot be clipped by a replay, in words; empty if they can.
  std::string obstacle() const;
  std::int64_t rows_of_unit() const { return grouping_ ? grouping_->rows_each() : 1; }
  std::int64_t captured_rows() const { return gradients_[0].second[0].captured()->samples(); }

  const ClipBatch& batch_;
  const Tensor& losses_;
  const Grouping* grouping_;
  ClipGraphs& graphs_;
  OnePassSink& rest_;
  ParameterUses gradients_;  // of rows, also where units have several
};

}  // namespace sotto
