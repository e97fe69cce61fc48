// What a device's own library of attention is asked for.
#pragma once

#include "kernels/host_device/attention_args.h"

namespace sotto {

// None of the views is empty; the gradients' are there where the way back is asked for.
struct AttentionProblem {
  FusedAttention forward;
  FusedAttentionGrad grad;
  bool backward = false;
};

// f(view) for the views that there are, always in one order.
template <class F>
void for_each_view(const AttentionProblem& p, F&& f) {
  for (const View* view :
       {&p.forward.q, &p.forward.k, &p.forward.v, &p.forward.y, &p.forward.stats})
    f(*view);
  if (!p.backward) return;
  for (const View* view : {&p.grad.dy, &p.grad.dq, &p.grad.dk, &p.grad.dv}) f(*view);
}

// How the library does it, for all problems of one form.
class AttentionPlan {
 public:
  virtual ~AttentionPlan() = default;
  virtual void run(const AttentionProblem& problem) const = 0;
};

}  // namespace sotto
