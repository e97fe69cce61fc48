// Measures the bytes of one training step, with or without each memory technique, for the memory
// tour and the memory benchmark.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "memory/profiling/phase_profiler.h"
#include "nn/optim/optimizer.h"

namespace sotto::models {

// Flat clipping keeps saved factors until all norms are known (one pass), or runs backward twice;
// clipping by layer has a bound for each layer, in one pass.
enum class StepPrivacy { none, one_pass, two_passes, by_layer };
enum class StepOptimizer { sgd, momentum, adam };

struct StepSetting {
  std::int64_t accumulation = 1;  // physical batches; divides the batch
  StepPrivacy privacy = StepPrivacy::none;
  StepOptimizer optimizer = StepOptimizer::sgd;
  bool bf16_state = false;
  bool fused_update = false;  // by UpdateSink; not with accumulation or privacy
  Dtype precision = Dtype::f32;
  int checkpoint = 0;  // activation checkpoints, memory::set_checkpoints
};

// All sizes are in bytes, as the allocator counts them.
struct StepBytes {
  std::size_t parameters = 0;
  std::size_t state = 0;  // of the optimizer
  std::size_t kept = 0;   // held for backward between forward and backward of one physical batch
  std::size_t gradients = 0;  // held when the last backward is done
  std::size_t peak = 0;       // peak of all bytes in use during the step
  std::size_t before = 0;     // in use when the step begins: parameters, state, inputs
  // The peaks and seconds of "forward", "backward" and "update".
  std::vector<memory::PhaseTotal> phases;
  double seconds() const;
};

// A model and an optimizer, whose state is already allocated, that can make steps.
class StepRun {
 public:
  // Returns the losses [n] of n samples; it puts the inputs on the tape.
  using Loss = std::function<Var(nn::Module& model, Tape& tape, std::int64_t n)>;
  // Makes a model and one small step. Throws std::invalid_argument for conflicting settings.
  StepRun(const std::function<std::unique_ptr<nn::Module>()>& make, const Loss& loss,
          const StepSetting& setting);
  StepBytes step(std::int64_t batch);

 private:
  void ordinary(std::int64_t batch);
  void privately(std::int64_t batch);
  Var forward(Tape& tape, std::int64_t n);

  StepSetting setting_;
  Loss loss_;
  std::unique_ptr<nn::Module> model_;
  std::unique_ptr<nn::Optimizer> optimizer_;
  StepBytes bytes_;
  memory::PhaseProfiler phases_;
};

}  // namespace sotto::models
