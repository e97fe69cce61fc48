// The destination of gradients: a sink, not the tape, decides how a parameter's per-sample gradient
// is used.
#pragma once

#include "autograd/parameter.h"

namespace sotto {

class PerSampleGrad;

// Receives the gradients of a backward. Use SumSink for ordinary training, and dp's Clipper, which
// has sinks that bound influence, for private training. Override receive() for other uses.
class GradSink {
 public:
  virtual ~GradSink() = default;
  // Receives all uses of one parameter, whose sum is the gradient. Called once per used parameter,
  // in reverse order of first use, as soon as backward has passed its last use.
  virtual void receive(Parameter& parameter, std::vector<PerSampleGrad> uses) = 0;
  // True if only sum() of the gradients matters: the tape may then sum over samples before it pulls
  // a gradient back through shared values.
  virtual bool sums_only() const { return false; }
  // True if received gradients are kept until other parameters have arrived. Those kept longer must
  // be in their smallest_form(): others may read values of parameters.
  virtual bool keeps() const { return false; }
  // True if the sink bounds the influence of each sample on its results. A private tape delivers to
  // no other sink.
  virtual bool bounds_influence() const { return false; }
};

// The sink of ordinary training: gradients summed over samples.
class SumSink final : public GradSink {
 public:
  void receive(Parameter& parameter, std::vector<PerSampleGrad> uses) override;
  bool sums_only() const override { return true; }
  // In order of arrival; repeated backwards add up.
  const Gradients& gradients() const { return gradients_; }

 private:
  Gradients gradients_;
};

// The sink for tests and statistics: the materialized gradient of each sample. Not private.
class PerSampleGradSink final : public GradSink {
 public:
  void receive(Parameter& parameter, std::vector<PerSampleGrad> uses) override;
  // The per-sample gradients [n, ...shape]. Throws if the parameter had no gradient.
  const Tensor& rows(const Parameter& parameter) const;
  // The squared norm of each sample's gradient over all parameters: [n] f64.
  Tensor squared_norms() const;
  const Gradients& all() const { return rows_; }

 private:
  Gradients rows_;
};

// The sink of directional derivatives: the inner products of each sample's gradient with a given
// direction, added up over all parameters. Not private.
class DirectionSink final : public GradSink {
 public:
  // Parameters without a direction add nothing.
  explicit DirectionSink(Gradients direction) : direction_(std::move(direction)) {}
  void receive(Parameter& parameter, std::vector<PerSampleGrad> uses) override;
  // <g[n], direction>, [n] f64; undefined if no gradient arrived.
  const Tensor& products() const { return products_; }

 private:
  Gradients direction_;
  Tensor products_;
};

// Adds to the entry of `parameter`, or appends one.
void accumulate(Gradients& gradients, Parameter& parameter, const Tensor& value);

}  // namespace sotto
