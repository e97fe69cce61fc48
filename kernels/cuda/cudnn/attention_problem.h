// The problem that the attention library solves, and its plan.
#pragma once

#include "kernels/host_device/attention_args.h"

namespace sotto {

// No view is empty; `grad` is set if `backward` is.
struct AttentionProblem {
  FusedAttention forward;
  FusedAttentionGrad grad;
  bool backward = false;
};

// Calls f(view) for each view of the problem, in a fixed order.
template <class F>
void for_each_view(const AttentionProblem& p, F&& f) {
  for (const View* view :
       {&p.forward.q, &p.forward.k, &p.forward.v, &p.forward.y, &p.forward.stats})
    f(*view);
  if (p.forward.bias.data) f(p.forward.bias);
  if (!p.backward) return;
  for (const View* view : {&p.grad.dy, &p.grad.dq, &p.grad.dk, &p.grad.dv}) f(*view);
}

// The library's plan for all problems of one form.
class AttentionPlan {
 public:
  virtual ~AttentionPlan() = default;
  virtual void run(const AttentionProblem& problem) const = 0;
};

}  // namespace sotto
