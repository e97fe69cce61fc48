// Gradients as vectors: two of them hold the same parameters in the same order.
#pragma once

#include <vector>

#include "autograd/parameter.h"

namespace sotto::multilevel {

// <a, b>, added in double.
double inner_product(const Gradients& a, const Gradients& b);
// |a|, added in double.
double norm(const Gradients& a);
// factor a, in new tensors.
Gradients scaled(const Gradients& a, double factor);
// y += factor x, in place.
void add_scaled(double factor, const Gradients& x, Gradients& y);
// The entries of these parameters in their order; zeros for one that has none.
Gradients ordered(const Gradients& gradients, const std::vector<Parameter*>& parameters);

// Converted to f64; itself where it is f64.
Gradients in_f64(const Gradients& a);
// The values of a's parameters, moved by factor a.
Gradients moved(const Gradients& a, double factor);

// Replaces the values of parameters while it lives. The destructor puts their former tensors back,
// with all their bits.
class Replaced {
 public:
  // A parameter's value may have another type than its own.
  explicit Replaced(Gradients values);
  Replaced(const Replaced&) = delete;
  Replaced& operator=(const Replaced&) = delete;
  ~Replaced();

 private:
  void exchange();
  Gradients other_;  // the values that the parameters do not have now
};

// Makes `wanted`, out of `all`, the only trainable parameters while it lives.
class OnlyTrainable {
 public:
  OnlyTrainable(const std::vector<Parameter*>& all, const std::vector<Parameter*>& wanted);
  OnlyTrainable(const OnlyTrainable&) = delete;
  OnlyTrainable& operator=(const OnlyTrainable&) = delete;
  ~OnlyTrainable();

 private:
  std::vector<std::pair<Parameter*, bool>> before_;
};

}  // namespace sotto::multilevel
