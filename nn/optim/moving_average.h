// The exponential moving average of a model's parameters. Of a privately trained model it is
// post-processing: it costs no privacy.
#pragma once

#include <map>
#include <string>

#include "nn/module.h"

namespace sotto::nn {

// After t updates the average of p_1 .. p_t with weights (1 - decay) decay^(t - i) / (1 - decay^t),
// which sum to one: there is no bias towards the initial values. The module must outlive it.
class MovingAverage {
 public:
  // Throws std::invalid_argument unless 0 <= decay < 1 and the parameters are f32 or f64.
  MovingAverage(Module& module, double decay);

  // Takes the parameters' present values in.
  void update();
  std::int64_t updates() const { return updates_; }
  // Gives the parameters of a module of the same names and shapes copies of the averages. Throws
  // std::invalid_argument otherwise, or before the first update.
  void copy_to(Module& module) const;

  // The module's parameters have the averages as values while this lives.
  class Scope {
   public:
    explicit Scope(MovingAverage& average);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    MovingAverage& average_;
  };

  // "average.conv1.weight" for each parameter, once there has been an update, and "updates", i64 of
  // rank 0; copies.
  std::map<std::string, Tensor> state() const;
  // Throws std::invalid_argument, naming the entry, for what does not fit; then nothing has
  // changed.
  void load_state(const std::map<std::string, Tensor>& state);

 private:
  void exchange();

  NamedParameters parameters_;
  std::vector<Tensor> averages_;
  double decay_;
  std::int64_t updates_ = 0;
  bool exchanged_ = false;
};

}  // namespace sotto::nn
