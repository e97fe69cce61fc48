// The exponential moving average of a model's parameters. Averaging the parameters of a privately
// trained model is post-processing: it costs no privacy.
#pragma once

#include <map>
#include <string>

#include "nn/module.h"

namespace sotto::nn {

enum class AverageStart {
  // After t updates: the average of p_1 .. p_t with weights (1 - decay) decay^(t - i) / (1 -
  // decay^t): at first all values alike, the earliest ones too.
  unbiased,
  // The t-th update has the decay min(decay, t / (9 + t)), so that early values are soon forgotten
  // (De et al. 2022; `num_updates` in TensorFlow's ExponentialMovingAverage).
  warmup,
};

// The weights sum to one, so that there is no bias towards the initial values. Call update() after
// each step, and evaluate inside a Scope. The module must outlive the average.
class MovingAverage {
 public:
  // Throws std::invalid_argument unless 0 <= decay < 1 and the parameters are f32 or f64.
  MovingAverage(Module& module, double decay, AverageStart start = AverageStart::unbiased);

  // Adds the parameters' present values to the average.
  void update();
  std::int64_t updates() const { return updates_; }
  // Copies the averages into the parameters of a module with the same names and shapes. Throws
  // std::invalid_argument if names or shapes differ, or before the first update.
  void copy_to(Module& module) const;

  // For a training checkpoint: "average.conv1.weight" for each parameter, once there has been an
  // update, and "updates", an i64 of rank 0. The tensors are copies.
  std::map<std::string, Tensor> state() const;
  // Throws std::invalid_argument with the entry's name, before any change, when an entry is
  // missing, unexpected, or of another shape or dtype.
  void load_state(const std::map<std::string, Tensor>& state);

  // Swaps the averages into the module's parameters while it lives.
  class Scope {
   public:
    // Throws std::invalid_argument before the first update.
    explicit Scope(MovingAverage& average);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    MovingAverage& average_;
  };

 private:
  void exchange();

  NamedParameters parameters_;
  std::vector<Tensor> averages_;
  double decay_;
  AverageStart start_;
  std::int64_t updates_ = 0;
  bool exchanged_ = false;
};

}  // namespace sotto::nn
