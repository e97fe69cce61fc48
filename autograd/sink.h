// Where backward delivers gradients: what becomes of a parameter's per-sample gradient is the
// sink's choice, not the tape's.
#pragma once

#include "autograd/parameter.h"
#include "autograd/per_sample/per_sample.h"

namespace sotto {

class GradSink {
 public:
  virtual ~GradSink() = default;
  // Takes all uses of one parameter at once, when backward has passed the last of them. The
  // gradient is their sum. Called once for each parameter used, in reverse order of first use.
  virtual void receive(Parameter& parameter, std::vector<PerSampleGrad> uses) = 0;
  // True when only sum() of what is received matters: the tape may then sum before it pulls a
  // gradient back through shared values.
  virtual bool sums_only() const { return false; }
  // True when what is received stays until other parameters have come.
  virtual bool keeps() const { return false; }
  // True when what leaves the sink has bounded influence of each sample. A private tape delivers
  // to no other.
  virtual bool bounds_influence() const { return false; }
};

// Ordinary training: the sum over samples.
class SumSink final : public GradSink {
 public:
  void receive(Parameter& parameter, std::vector<PerSampleGrad> uses) override;
  bool sums_only() const override { return true; }
  // In the order in which they arrived; repeated backwards add up.
  const Gradients& gradients() const { return gradients_; }

 private:
  Gradients gradients_;
};

// One materialised row for each sample, for tests and statistics. Not private.
class PerSampleGradSink final : public GradSink {
 public:
  void receive(Parameter& parameter, std::vector<PerSampleGrad> uses) override;
  // [n, ...shape]. Throws when the parameter had no gradient.
  const Tensor& rows(const Parameter& parameter) const;
  // [n] f64, over all parameters.
  Tensor squared_norms() const;
  const Gradients& all() const { return rows_; }

 private:
  Gradients rows_;
};

// Adds to the entry of `parameter`, or appends one.
void accumulate(Gradients& gradients, Parameter& parameter, const Tensor& value);

}  // namespace sotto
