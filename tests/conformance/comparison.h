// Comparison of a case's computed tensors with the expected ones.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/conformance/case.h"

namespace sotto::conformance {

// One value outside its tolerance: the worst of a tensor.
struct Deviation {
  std::string text;     // "grad_sample.weight (ghost): error 3.1e-02 at 4 of (2, 3), ..."
  double severity = 0;  // error / tolerance; infinite for NaN and wrong shapes
  // Computed in f64, it agrees with the reference to single precision, as it does if the reference
  // itself rounded a constant to single precision. Reported, but not a failure.
  bool single_precision = false;
};

class Comparison {
 public:
  // The values were computed in `dtype`, which chooses the tolerance; `tf32`: by a GPU that rounds
  // factors.
  Comparison(const Case& c, Dtype dtype, bool tf32) : case_(c), dtype_(dtype), tf32_(tf32) {}

  bool expects(const std::string& name) const { return case_.has("expect." + name); }
  // Compares with expect.<name>, if the case has it. `how` names the method of computation, if
  // there are several.
  void expect(const std::string& name, const Tensor& got, const std::string& how = "");
  // Allows at least this fraction of a tensor's largest magnitude from now on.
  void allow(double fraction) { fraction_ = std::max(fraction_, fraction); }
  // Allows at least this error, and this fraction of a tensor's largest magnitude, until the next
  // call.
  void allow_at_least(Tolerance least) { least_ = least; }
  // Adds a fact that is wrong whatever the tolerance.
  void fail(const std::string& text);
  // The library refuses the case, and may: nothing is to be compared.
  void refused() { refused_ = true; }
  // Adds a deviation for every expected tensor that was not compared.
  void finish();
  const std::vector<Deviation>& deviations() const { return deviations_; }

 private:
  const Case& case_;
  Dtype dtype_;
  bool tf32_;
  bool refused_ = false;
  double fraction_ = 0;
  Tolerance least_ = {};
  std::set<std::string> compared_;
  std::vector<Deviation> deviations_;
};

}  // namespace sotto::conformance
